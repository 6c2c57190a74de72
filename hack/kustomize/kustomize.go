// Package kustomize contains what the chart installs by default, for tests and measurements of an installation.
package kustomize

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The namespace and the ServiceAccounts of the base.
const (
	Namespace  = "assay-system"
	Worker     = "assay-worker"
	Controller = "assay-controller"
	Webhook    = "assay-webhook"
)

//go:embed base/*.yaml
var base embed.FS

// Objects returns the objects of the base of one of the kinds, each after the objects that it needs; of all kinds if there are none.
// CustomResourceDefinitions are in package charts.
func Objects(kinds ...string) ([]*unstructured.Unstructured, error) {
	files, err := base.ReadDir("base")
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		if file.Name() == "kustomization.yaml" {
			continue
		}
		data, err := base.ReadFile("base/" + file.Name())
		if err != nil {
			return nil, err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", file.Name(), err)
			}
			if o.Object != nil && (len(kinds) == 0 || slices.Contains(kinds, o.GetKind())) {
				out = append(out, o)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return out, nil
}

// rank orders objects: the namespace comes before what is in it.
func rank(o *unstructured.Unstructured) int {
	if o.GetKind() == "Namespace" {
		return 0
	}
	return 1
}
