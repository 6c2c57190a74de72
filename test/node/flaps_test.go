//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEveryVersionIsComparedWithTheOneBefore(t *testing.T) {
	f := &flaps{labels: map[string]string{"stays": "1", "goes": "1"}}
	for _, labels := range []map[string]string{
		{"stays": "1", "goes": "1", "comes": "1"},
		{"stays": "1", "comes": "2"},
		{"stays": "1", "comes": "2", "goes": "1"},
	} {
		f.look(&corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: labels}})
	}
	if diff := cmp.Diff([]string{"comes changed from \"1\" to \"2\"", "goes went away"}, slices.Sorted(slices.Values(f.seen))); diff != "" {
		t.Errorf("flaps (-want +got):\n%s", diff)
	}
	if f.version.Load() != "7" {
		t.Errorf("the version seen last is %v", f.version.Load())
	}
}
