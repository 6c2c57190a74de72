package featuresets

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/assay-project/assay/internal/nodefeature"
)

// TestWhatWasSentBelongsToTheInformer overwrites each object that a watch has sent, as the transform of an informer may. The store once
// kept the object itself for the time in which sets are missing, and sent one as both the deletion and the addition.
func TestWhatWasSentBelongsToTheInformer(t *testing.T) {
	s, from := New("own"), watch.NewRaceFreeFake()
	w, err := resolving{&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &nodefeature.NodeFeatureList{}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return from, nil },
	}, s}.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	kernelName, cpuName := nameOf(t, kernel), nameOf(t, cpu)
	version := 0
	publish := func(color string, sets ...string) {
		f := naming(t, "own", `{}`, sets...)
		version++
		f.UID, f.ResourceVersion, f.Spec.Labels = "u", fmt.Sprint(version), map[string]string{"color": color}
		from.Modify(f)
	}
	expect := func(kind watch.EventType, color, feature string) {
		t.Helper()
		e := <-w.ResultChan()
		if e.Type == watch.Bookmark {
			e = <-w.ResultChan()
		}
		f := e.Object.(*nodefeature.NodeFeature)
		if e.Type != kind || f.Name != "n" || f.UID != "u" || f.Spec.Labels["color"] != color || f.Spec.Features.Feature(feature) == nil || f.Spec.Features.Err != nil {
			t.Errorf("%s %s/%s (%s) with the labels %v and the features %v, %v; want %s of n, %s, with %s", e.Type, f.Namespace, f.Name, f.UID,
				f.Spec.Labels, f.Spec.Features.Names(), f.Spec.Features.Err, kind, color, feature)
		}
		*f = nodefeature.NodeFeature{Spec: nodefeature.Spec{Labels: map[string]string{"color": "overwritten"}}}
	}
	s.Put(set(t, kernelName, kernel))
	publish("red", kernelName)
	expect(watch.Modified, "red", "kernel.config")
	publish("blue", cpuName)
	expect(watch.Modified, "red", "kernel.config") // until the set exists
	s.Put(set(t, cpuName, cpu))
	expect(watch.Deleted, "blue", "cpu.cpuid")
	expect(watch.Added, "blue", "cpu.cpuid")
	s.Remove(set(t, cpuName, cpu))
	publish("green", cpuName)
	expect(watch.Modified, "blue", "cpu.cpuid")
}
