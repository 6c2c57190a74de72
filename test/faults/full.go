//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

const (
	// smallQuota is the quota of etcd that another client fills, in bytes.
	smallQuota = 64 << 20
	// fillSize is the size of each of its objects, which is less than the API server's limit of a request.
	fillSize = 900 << 10
	// noSpace is in etcd's error.
	noSpace = "database space exceeded"
	// fillLabel selects these objects.
	fillLabel = "faults.example.com/fill"
)

// fullEtcd lets another client fill etcd up to its quota. Nodes stay as they are, facts that change meanwhile wait, and a log names the cause.
// When there is space again, the Nodes converge.
func (w *world) fullEtcd(ctx context.Context) error {
	objects, err := w.fill(ctx)
	if err != nil {
		return err
	}
	w.say("  etcd is full after %d objects of %d kB", objects, fillSize>>10)
	w.touch(w.nodes[:changesPerRound])
	if err := stage.Sleep(ctx, leaseDuration); err != nil { // until after the leader's Lease has expired, which cannot be renewed
		return err
	}
	err = cluster.WaitFor(ctx, "a controller that names the cause", func(context.Context) error {
		if !slices.ContainsFunc(controllers, func(name string) bool { return strings.Contains(w.Log(name), noSpace) }) {
			return fmt.Errorf("no log of %s has %q", strings.Join(controllers, ", "), noSpace)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range programNames {
		count := 0
		for line := range strings.Lines(w.Log(name)) {
			if strings.Contains(line, noSpace) {
				if count++; count == 1 {
					w.say("  %s: %s", name, strings.TrimSpace(line))
				}
			}
		}
	}
	return errors.Join(err, w.empty(ctx))
}

// fill creates objects until etcd rejects one.
func (w *world) fill(ctx context.Context) (created int, err error) {
	for ; created < 2*smallQuota/fillSize; created++ {
		err := w.client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("fill-%d", created), Labels: map[string]string{fillLabel: ""}},
			Data:       map[string]string{"fill": strings.Repeat("x", fillSize)},
		})
		if err != nil && strings.Contains(err.Error(), noSpace) {
			return created, nil
		}
		if err != nil {
			return created, err
		}
	}
	return created, errors.New("etcd accepts more than its quota")
}

// empty deletes what fill has created, and frees the space as docs of etcd say.
func (w *world) empty(ctx context.Context) error {
	list := &corev1.ConfigMapList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.HasLabels{fillLabel}); err != nil {
		return err
	}
	for i := range list.Items {
		if err := w.client.Delete(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	var status struct {
		Header struct{ Revision string }
	}
	if err := w.askEtcd(ctx, "maintenance/status", map[string]any{}, &status); err != nil {
		return err
	}
	if err := w.askEtcd(ctx, "kv/compaction", map[string]any{"revision": status.Header.Revision, "physical": true}, nil); err != nil {
		return err
	}
	return errors.Join(w.askEtcd(ctx, "maintenance/defragment", map[string]any{}, nil), w.alarm(ctx, false))
}
