//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// fieldManager is the field manager of this package.
const fieldManager = "assay-cluster"

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ApplyCRDs applies Assay's CRDs and waits until the API server serves them. It is idempotent.
func (c *Cluster) ApplyCRDs(ctx context.Context) error {
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	objects, err := definitions()
	if err != nil {
		return err
	}
	api := client.Resource(crdResource)
	for _, object := range objects {
		name := object.GetName()
		options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		if _, err := api.Apply(ctx, name, object, options); err != nil {
			return fmt.Errorf("apply definition %s: %w", name, err)
		}
	}
	for _, object := range objects {
		name := object.GetName()
		err := WaitFor(ctx, "definition "+name, func(ctx context.Context) error {
			object, err := api.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return established(object)
		})
		if err != nil {
			return err
		}
	}
	return c.discovered(ctx)
}

// discovered waits until the API server lists Assay's kinds in its discovery document, from which clients learn them. It does so some time
// after it serves them.
func (c *Cluster) discovered(ctx context.Context) error {
	kinds, err := ownKinds()
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	return WaitFor(ctx, "discovery of Assay's kinds", func(ctx context.Context) error {
		_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
		if err != nil {
			return err
		}
		listed := map[schema.GroupVersionResource]bool{}
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				return err
			}
			for i := range list.APIResources {
				listed[gv.WithResource(list.APIResources[i].Name)] = true
			}
		}
		for _, kind := range kinds {
			if !listed[kind] {
				return fmt.Errorf("%s is not listed", kind)
			}
		}
		return nil
	})
}

// definitions returns Assay's CRDs, sorted by file name.
func definitions() ([]*unstructured.Unstructured, error) {
	files := charts.CRDs()
	var objects []*unstructured.Unstructured
	for _, file := range charts.CRDNames() {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(files[file], &object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// ownKinds returns the resources that the CRDs define.
func ownKinds() ([]schema.GroupVersionResource, error) {
	objects, err := definitions()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionResource
	for _, object := range objects {
		var definition struct {
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Plural string `json:"plural"`
				} `json:"names"`
				Versions []struct {
					Name string `json:"name"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &definition); err != nil {
			return nil, fmt.Errorf("definition %s: %w", object.GetName(), err)
		}
		spec := definition.Spec
		kinds = append(kinds, schema.GroupVersionResource{Group: spec.Group, Version: spec.Versions[0].Name, Resource: spec.Names.Plural})
	}
	return kinds, nil
}

// established returns nil once the API server serves the CRD, else the reason.
func established(definition *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return err
	}
	problem := errors.New("not established yet")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		switch {
		case condition["type"] == "Established" && condition["status"] == "True":
			return nil
		case condition["type"] == "NamesAccepted" && condition["status"] == "False",
			condition["type"] == "NonStructuralSchema" && condition["status"] == "True":
			problem = fmt.Errorf("%v: %v", condition["reason"], condition["message"])
		}
	}
	return problem
}
