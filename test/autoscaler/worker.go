//go:build linux

package main

import (
	"context"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/stage"
)

// fakeWorkers publishes the features of Nodes that have no machine, as Assay's worker does on real ones.
type fakeWorkers struct {
	api      client.Client
	machines *machines
}

// machines holds the flags of cpu.cpuid of new machines, by type. It is safe for concurrent use.
type machines struct {
	mu    sync.Mutex
	flags map[string][]string
}

func (m *machines) of(kind string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flags[kind]
}

func (m *machines) set(kind string, flags []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flags[kind] = flags
}

// publishInterval is the interval at which new Nodes are found.
const publishInterval = 100 * time.Millisecond

// run publishes until ctx ends. Errors are retried; the story reports Nodes that stay without features.
func (w *fakeWorkers) run(ctx context.Context) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	published := map[string]bool{}
	for {
		var nodes corev1.NodeList
		_ = w.api.List(ctx, &nodes)
		for i := range nodes.Items {
			if n := &nodes.Items[i]; !published[n.Name] && n.DeletionTimestamp == nil {
				published[n.Name] = w.api.Create(ctx, w.feature(n)) == nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// feature returns the NodeFeature of a Node, which is deleted with the Node.
func (w *fakeWorkers) feature(n *corev1.Node) *nfdv1alpha1.NodeFeature {
	flags := nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
	for _, f := range w.machines.of(n.Labels[corev1.LabelInstanceTypeStable]) {
		flags.Elements[f] = nfdv1alpha1.Nil{}
	}
	boot := nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"id": "boot-of-" + n.Name}}
	return &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: stage.Namespace, Name: n.Name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: n.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": flags},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"system.boot": boot},
			Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
		}},
	}
}

// port returns the port of an address.
func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
