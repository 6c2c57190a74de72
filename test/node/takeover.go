//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/test/cluster"
)

// predecessor is the part of Node Feature Discovery's installation that matters for taking over: a DaemonSet that owns the
// NodeFeature of each node.
const predecessor = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nfd-worker, namespace: ` + namespace + `, labels: {app.kubernetes.io/name: node-feature-discovery}}
spec:
  selector: {matchLabels: {role: nfd-worker}}
  template:
    metadata: {labels: {role: nfd-worker}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: pause, image: "` + pauseImage + `", imagePullPolicy: Never}
`

// takeOverAndBack installs Assay next to Node Feature Discovery, removes that, hands back and uninstalls, without any label being
// removed.
//
// It simulates two releases that share a cluster: the test writes the objects of Node Feature Discovery itself.
func takeOverAndBack(ctx context.Context, s *story) error {
	if err := s.pretend(ctx, s.labels); err != nil {
		return fmt.Errorf("write what Node Feature Discovery writes: %w", err)
	}
	s.note("in %s are the objects and on the Node the labels and annotations of Node Feature Discovery", namespace)
	return s.watched(ctx, func() error {
		if err := s.takeOver(ctx); err != nil {
			return err
		}
		return s.handBack(ctx)
	})
}

// takeOver follows docs/install.md.
func (s *story) takeOver(ctx context.Context) error {
	if _, err := s.show(ctx, append([]string{"helm", "install", release, chart, "--skip-crds", "--hide-notes"}, s.values()...)...); err != nil {
		return err
	}
	if err := s.ownedByNode(ctx); err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "delete", "daemonset", "nfd-worker", "-n", namespace, "--cascade=foreground"); err != nil {
		return err
	}
	if err := s.ownedByNode(ctx); err != nil {
		return fmt.Errorf("after the predecessor is gone: %w", err)
	}
	s.note("the NodeFeature belongs to its Node, and has outlived the predecessor")
	_, err := s.show(ctx, "helm", "test", release, "--namespace="+namespace, "--timeout="+helmTimeout)
	return err
}

// handBack is the reverse. Node Feature Discovery finds its record, and objects that it can write.
func (s *story) handBack(ctx context.Context) error {
	if _, err := s.show(ctx, append([]string{"helm", "upgrade", release, chart, "--skip-crds", "--hide-notes"}, s.values("postDeleteCleanup=false", "worker.config.core.shareFeatures=false")...)...); err != nil {
		return err
	}
	if err := s.whole(ctx); err != nil {
		return err
	}
	if _, err := s.showInput(ctx, predecessor, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.show(ctx, "helm", "uninstall", release, "--namespace="+namespace, "--wait", "--timeout="+helmTimeout); err != nil {
		return err
	}
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	if node.Annotations[recordAnnotation] == "" {
		return errors.New("the record of what was written is gone, so taking over is impossible")
	}
	// Its NodeFeature is data that Node Feature Discovery continues to use; so are its Lease and the controller's records.
	data := []string{"NodeFeature/", "Lease/", "ConfigMap/"}
	err = s.gone(ctx, func(object string) bool {
		return strings.Contains(object, "/nfd-worker") || slices.ContainsFunc(data, func(kind string) bool { return strings.HasPrefix(object, kind) })
	})
	if err != nil {
		return err
	}
	owner, err := s.client.AppsV1().DaemonSets(namespace).Get(ctx, "nfd-worker", metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":%q,"uid":%q}]}}`, owner.Name, owner.UID)
	_, err = s.show(ctx, "kubectl", "patch", "nodefeature", nodeName, "-n", namespace, "--type=merge", "-p", patch)
	return err
}

// whole waits until the NodeFeature names no feature sets, which Node Feature Discovery does not read.
func (s *story) whole(ctx context.Context) error {
	return cluster.WaitFor(ctx, "a NodeFeature without feature sets", func(ctx context.Context) error {
		names, err := s.Kubectl(ctx, "get", "nodefeature", nodeName, "-n", namespace, "-o", "jsonpath={.spec.featureSets}")
		if err == nil && strings.TrimSpace(names) != "" {
			err = fmt.Errorf("it names %s", names)
		}
		return err
	})
}

// recordAnnotation is the annotation in which both record the labels that they have written.
const recordAnnotation = "nfd.node.kubernetes.io/feature-labels"

// pretend writes what Node Feature Discovery would write: CRDs without an owner, a NodeFeature per node, labels and their record on
// the Node.
func (s *story) pretend(ctx context.Context, labels map[string]string) error {
	definitions, err := filepath.Glob(filepath.Join(s.root, chart, "crds", "nfd.*.yaml"))
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "delete", "crd", "-l", "app.kubernetes.io/part-of=assay", "--wait"); err != nil {
		return err
	}
	for _, file := range definitions {
		if _, err := s.Kubectl(ctx, "create", "-f", file); err != nil {
			return err
		}
	}
	if _, err := s.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "nodefeatures.nfd.k8s-sigs.io"); err != nil {
		return err
	}
	if _, err := s.KubectlInput(ctx, predecessor, "apply", "-f", "-"); err != nil {
		return err
	}
	owner, err := s.client.AppsV1().DaemonSets(namespace).Get(ctx, "nfd-worker", metav1.GetOptions{})
	if err != nil {
		return err
	}
	plain := map[string]string{}
	for key, value := range labels {
		plain[strings.TrimPrefix(key, featureNS)] = value
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
		"metadata": map[string]any{
			"name": nodeName, "namespace": namespace, "labels": map[string]string{"nfd.node.kubernetes.io/node-name": nodeName},
			"ownerReferences": []map[string]any{{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner.Name, "uid": owner.UID}},
		},
		"spec": map[string]any{"labels": plain, "features": map[string]any{}},
	})
	if err != nil {
		return err
	}
	if _, err := s.KubectlInput(ctx, string(object), "create", "-f", "-"); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      labels,
		"annotations": map[string]string{recordAnnotation: strings.Join(slices.Sorted(maps.Keys(plain)), ",")},
	}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// ownedByNode waits until the Node is the only owner of the NodeFeature.
func (s *story) ownedByNode(ctx context.Context) error {
	return cluster.WaitFor(ctx, "the NodeFeature's owner", func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, "get", "nodefeature", nodeName, "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences[*].kind}")
		if apierrors.IsNotFound(err) || err != nil {
			return err
		}
		if out != "Node" {
			return fmt.Errorf("it is %q", out)
		}
		return nil
	})
}
