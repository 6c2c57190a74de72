package placement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/requirements"
)

// Pod returns the pod of a target in the cluster, or in the files if the client is nil.
func Pod(ctx context.Context, w *world.World, c *cluster.Client, t workload.Target) (*corev1.Pod, error) {
	if c == nil {
		for i := range w.Scheduling.Pods {
			if p := &w.Scheduling.Pods[i]; t.Of.Template == nil && p.Name == t.Name && p.Namespace == t.Namespace {
				return p, nil
			}
		}
		for i := range w.Scheduling.Workloads {
			if o := &w.Scheduling.Workloads[i]; o.Target == t {
				return &o.Pod, nil
			}
		}
		return nil, cli.NotFound(schema.GroupResource{Group: t.Of.Resource.Group, Resource: t.Of.Resource.Resource}, t.Name, cli.Elsewhere(t.Namespace))
	}
	if t.Of.Template == nil {
		return c.Pod(ctx, t.Namespace, t.Name)
	}
	object, err := c.Object(ctx, t.Of.Resource, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	return t.Of.Pod(object)
}

// admitted returns a pod as it is after admission: its namespace's admission adds the label of its request to the node selector.
func admitted(pod *corev1.Pod, installed *serving.Installed) *corev1.Pod {
	name := pod.Labels[assayv1alpha1.FeatureRequestLabel]
	if name == "" || installed.Policy == "" && installed.Webhook == "" {
		return pod
	}
	out := pod.DeepCopy()
	if out.Spec.NodeSelector == nil {
		out.Spec.NodeSelector = map[string]string{}
	}
	out.Spec.NodeSelector[requirements.LabelOf(pod.Namespace, name)] = "true"
	return out
}

// Otherwise names the workloads of the name of a pod that does not exist, for the end of an error.
func Otherwise(ctx context.Context, w *world.World, c *cluster.Client, t workload.Target) string {
	for i := range workload.Kinds[1:] {
		other := workload.Target{Of: &workload.Kinds[i+1], Namespace: t.Namespace, Name: t.Name}
		if _, err := Pod(ctx, w, c, other); err == nil {
			return fmt.Sprintf("; did you mean %s/%s?", other.Of.Names[0], t.Name)
		}
	}
	return cli.Elsewhere(t.Namespace)
}
