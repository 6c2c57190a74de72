package review_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

func TestBrokenAnnotationsOfWorkloadsHavePaths(t *testing.T) {
	for kind, path := range map[string]string{
		"Pod": "metadata", "Deployment": "spec.template.metadata", "StatefulSet": "spec.template.metadata",
		"DaemonSet": "spec.template.metadata", "ReplicaSet": "spec.template.metadata", "Job": "spec.template.metadata",
		"CronJob": "spec.jobTemplate.spec.template.metadata",
	} {
		t.Run(kind, func(t *testing.T) {
			var object any = map[string]any{"annotations": map[string]string{
				assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exist}}}]",
			}}
			parts := strings.Split(path, ".")
			for i := len(parts) - 1; i >= 0; i-- {
				object = map[string]any{parts[i]: object}
			}
			data, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := review.PodsOf(kind, data)
			if err != nil {
				t.Fatal(err)
			}
			got := review.Review(pods, review.Known{})
			var paths []string
			for _, e := range got.Errors {
				paths = append(paths, "error at "+e.Field)
			}
			for _, w := range got.Warnings {
				paths = append(paths, "warning at "+w.Path)
			}
			want := "error at " + path
			if kind == "Pod" { // a pod is not rejected
				want = "warning at " + path
			}
			want += ".annotations[assay.dev/required-features].matchFeatures[0].matchExpressions[AVX].op"
			if diff := cmp.Diff([]string{want}, paths); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := review.PodsOf("Deployment", []byte(`{"spec":3}`)); err == nil {
		t.Error("a spec that is a number is accepted")
	}
	if pods, err := review.PodsOf("ConfigMap", []byte(`{}`)); pods != nil || err != nil {
		t.Errorf("got %v, %v for a kind that makes no pods", pods, err)
	}
}

// Pods do not inherit the annotations of the workload that creates them.
func TestAnnotationsOfTheWorkloadItselfAreWarnedOf(t *testing.T) {
	for text, want := range map[string][]string{
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, annotations: {assay.dev/required-features: "matchFeatures: []"}}}`: {
			"metadata.annotations[assay.dev/required-features]: has no effect here: move it to spec.template.metadata.annotations, the metadata of the pods",
		},
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, annotations: {example.com/a: b}}}`: nil,
		`{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {assay.dev/required-features:
  "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]"}}}`: nil,
	} {
		var got, admitted []string
		for _, d := range manifest.Parse("a.yaml", []byte(text)).Documents {
			if pods := review.ReadPods(d); pods != nil {
				for _, p := range review.Problems(d, review.Review(pods, review.Known{})) {
					got = append(got, p.Path+": "+p.Message)
				}
			}
			data, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			pods, err := review.PodsOf(d.Kind, data)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range review.Review(pods, review.Known{}).Warnings {
				admitted = append(admitted, w.Path+": "+w.Message)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lint of %s (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(want, admitted); diff != "" {
			t.Errorf("admission of %s (-want +got):\n%s", text, diff)
		}
	}
}
