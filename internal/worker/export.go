package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
)

// export prints the NodeFeature that would be published.
func export(w io.Writer, format, node, namespace string, c publish.Content) error {
	nf := nfdv1alpha1.NodeFeature{
		TypeMeta: metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{
			Name: node, Namespace: namespace,
			Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
		},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: c.Features, Labels: c.Labels},
	}
	data, err := json.MarshalIndent(&nf, "", "  ")
	if err == nil && format == "yaml" {
		data, err = toYAML(data)
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if format == "json" {
		data = append(data, '\n')
	}
	_, err = w.Write(data)
	return err
}

// toYAML converts JSON to YAML. It decodes into maps, so that keys are sorted and there are no braces and unnecessary quotes.
func toYAML(data []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(v), e.Close())
	return b.Bytes(), err
}
