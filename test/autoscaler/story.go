//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/shape"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

const (
	// pods is the namespace of the pods, and replicas their number: one machine has room for them.
	pods     = "ml"
	replicas = 3
	// label is the label of the nodes that meet the request.
	label = "features.assay.dev/ml.amx"
	// without and with are the types of the machines that do not and do have AMX.
	without = "m5.xlarge"
	with    = "m7.xlarge"
)

// story is the state of the test.
type story struct {
	*cluster.Cluster
	api             client.Client
	machines        *machines
	bin             string            // directory of the programs
	source, version map[string]string // by module
	results         []string
}

// tell runs the scenarios.
func (s *story) tell(ctx context.Context) error {
	for _, scenario := range []func(context.Context) error{
		s.learn, s.removeWebhook, s.undeclared, s.fromZero, s.bySelector, s.restoreWebhook, s.wrong, s.devices,
	} {
		if err := scenario(ctx); err != nil {
			return err
		}
	}
	return nil
}

// learn has one node of each pool, from which the controller learns their shapes, and shows the warning that comes before that.
func (s *story) learn(ctx context.Context) error {
	say("Each pool has a node for a while: the controller keeps what rules gave to it")
	if err := s.run(ctx, [][]string{
		{"apply", "-f", s.file("pools.yaml"), "-f", s.file("request.yaml")},
		{"wait", "nodepools", "--all", "--for=condition=Ready", "--timeout=2m"},
		{"wait", "nodefeaturerequest/amx", "--namespace=" + pods, "--for=condition=Materialized", "--timeout=2m"},
		{"get", "nodefeaturerequest", "amx", "--namespace=" + pods},
	}); err != nil {
		return err
	}
	if err := s.admissionAddsTheLabel(ctx); err != nil {
		return err
	}
	if err := s.firstNode(ctx, "general", false); err != nil {
		return err
	}
	const known = "no NodeShape has it either, so autoscalers do not know which nodes to add"
	if err := s.warns(ctx, known, "apply", "--dry-run=server", "-f", s.file("deployment.yaml")); err != nil {
		return err
	}
	if err := s.firstNode(ctx, "amx", true); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	return s.showShapes(ctx)
}

// reviews are the configurations of the webhook.
var reviews = []string{
	"validatingwebhookconfiguration/assay", "mutatingwebhookconfiguration/assay",
	"validatingwebhookconfiguration/assay-scheduling", "mutatingwebhookconfiguration/assay-scheduling",
}

// removeWebhook removes the webhook: pods need nothing of Assay to be admitted.
func (s *story) removeWebhook(ctx context.Context) error {
	say("The webhook is removed: the policy in the API server adds the label to node selectors")
	if err := s.Terminate(ctx, "webhook"); err != nil {
		return err
	}
	return s.kubectl(ctx, append([]string{"delete"}, reviews...)...)
}

// restoreWebhook runs the webhook again, for its warnings.
func (s *story) restoreWebhook(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "apply", "-f", s.file("assay.yaml")); err != nil {
		return err
	}
	return s.Restart(ctx, "webhook")
}

// undeclared shows that Karpenter buys nothing for a label that it does not know.
func (s *story) undeclared(ctx context.Context) error {
	say("No pool declares the feature: nothing is bought")
	if err := s.kubectl(ctx, "apply", "-f", s.file("deployment.yaml")); err != nil {
		return err
	}
	refusal := ""
	err := s.event(ctx, "Karpenter's reason", func(e *corev1.Event) bool {
		refusal = e.Message
		return e.Source.Component == karpenter && e.Reason == "FailedScheduling" && strings.HasPrefix(e.InvolvedObject.Name, "inference")
	})
	if err != nil {
		return err
	}
	fmt.Printf("Event of Karpenter: %s\n", refusal)
	if !strings.Contains(refusal, label) {
		return fmt.Errorf("the event does not name the label %s", label)
	}
	if err := s.observe(ctx, map[string]int{}); err != nil {
		return err
	}
	s.result("without the export", 0, nil, "never")
	return s.kubectl(ctx, "get", "pods,nodeclaims,nodes", "--namespace="+pods)
}

// fromZero shows that the pool whose shape has the label is scaled up.
func (s *story) fromZero(ctx context.Context) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	say("The export tells Karpenter what the machines of the pool have: one node is bought, of the right type")
	if err := s.export(ctx); err != nil {
		return err
	}
	return s.onlyRight(ctx, "deployment.yaml", "with the export, from zero")
}

// bySelector shows the same for pods that select the label themselves: no admission takes part.
func (s *story) bySelector(ctx context.Context) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	say("Pods select the label themselves: the same, without any admission")
	fmt.Println("$ assay request selector amx --namespace " + pods)
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "assay"), "request", "selector", "amx", "--namespace", pods)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig), os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return err
	}
	return s.onlyRight(ctx, "selecting.yaml", "with a selector of its own")
}

// onlyRight creates the Deployment in a file and checks that one node of the right type is bought.
func (s *story) onlyRight(ctx context.Context, file, scenario string) error {
	took, err := s.place(ctx, file)
	if err != nil {
		return err
	}
	bought, err := s.bought(ctx)
	if err != nil {
		return err
	}
	s.result(scenario, replicas, bought, took)
	if !maps.Equal(bought, map[string]int{with: 1}) {
		return fmt.Errorf("bought %v instead of one %s", bought, with)
	}
	return s.showNodes(ctx)
}

// wrong shows the cost of an outdated shape: the machines of a pool had AMX, and new ones do not.
func (s *story) wrong(ctx context.Context) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	say("Machines of another pool had the feature, and new ones do not: one node too many is bought")
	s.machines.set(without, s.machines.of(with))
	if err := s.firstNode(ctx, "general", true); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	s.machines.set(without, nil)
	if err := s.showShapes(ctx); err != nil {
		return err
	}
	if err := s.export(ctx); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "apply", "-f", s.file("deployment.yaml")); err != nil {
		return err
	}
	if err := s.unmet(ctx); err != nil {
		return err
	}
	tooMany := map[string]int{without: 1}
	if err := s.observe(ctx, tooMany); err != nil {
		return err
	}
	if err := s.showNodes(ctx); err != nil {
		return err
	}
	return s.correct(ctx, tooMany)
}

// unmet waits until the only node is not ready because of the label of its pool, and shows how a user sees that.
func (s *story) unmet(ctx context.Context) error {
	for _, reason := range []string{assayv1alpha1.ReasonLabelsUnmet, shape.ReasonNodeDiffers} {
		if err := s.event(ctx, "an Event "+reason, func(e *corev1.Event) bool { return e.Reason == reason }); err != nil {
			return err
		}
	}
	if err := s.run(ctx, [][]string{
		{"get", "events", "--field-selector=reason=" + assayv1alpha1.ReasonLabelsUnmet, "--output=custom-columns=OBJECT:.involvedObject.kind,REASON:.reason,MESSAGE:.message"},
		{"get", "nodeshapes"},
	}); err != nil {
		return err
	}
	return s.warns(ctx, "lost it, because a new node differs", "replace", "-f", s.file("deployment.yaml"))
}

// correct exports again, without the label that did not come true, and deletes the node.
func (s *story) correct(ctx context.Context, tooMany map[string]int) error {
	say("The export is repeated and the wrong node deleted: the pods get the right node")
	if err := s.export(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := s.kubectl(ctx, "delete", "nodeclaims", "--selector=karpenter.sh/nodepool=general", "--wait=false"); err != nil {
		return err
	}
	if err := s.placed(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := s.settled(ctx, without); err != nil {
		return err
	}
	bought, err := s.bought(ctx)
	if err != nil {
		return err
	}
	for kind, n := range tooMany {
		bought[kind] += n
	}
	s.result("with a wrong shape", replicas, bought, fmt.Sprintf("%.1f s after the correction", took.Seconds()))
	if !maps.Equal(bought, map[string]int{without: 1, with: 1}) {
		return fmt.Errorf("bought %v instead of one %s and one %s", bought, without, with)
	}
	return s.showNodes(ctx)
}

// firstNode makes Karpenter buy one node of a pool, and returns once the NodeShape of the pool has or does not have the label.
func (s *story) firstNode(ctx context.Context, pool string, has bool) error {
	if err := s.kubectl(ctx, "apply", "-f", s.file("first.yaml"), "--selector=pool="+pool); err != nil {
		return err
	}
	return cluster.WaitFor(ctx, "the shape of pool "+pool, func(ctx context.Context) error {
		var list assayv1alpha1.NodeShapeList
		if err := s.api.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			status := &list.Items[i].Status
			if status.Key[assayv1alpha1.NodePoolLabel] == pool && ptr.Deref(status.Nodes, 0) == 1 && (status.Labels[label] != "") == has {
				return nil
			}
		}
		return fmt.Errorf("%d shapes: none has one node, and the label: %t", len(list.Items), has)
	})
}

// export runs assay export, and applies its output.
func (s *story) export(ctx context.Context) error {
	fmt.Println("$ assay export --for karpenter | kubectl apply -f -")
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "assay"), "export", "--for", "karpenter")
	cmd.Env, cmd.Stderr = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig), os.Stdout
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	apply := stage.Command(ctx, s.Cluster, "apply", "-f", "-")
	apply.Stdin, apply.Stdout, apply.Stderr = bytes.NewReader(out), os.Stdout, os.Stdout
	if err := apply.Run(); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodepools", "--output=custom-columns=NAME:.metadata.name,LABELS:.spec.template.metadata.labels")
}

// admissionAddsTheLabel waits until the API server uses the policy: a pod that was created earlier would not get the node selector.
func (s *story) admissionAddsTheLabel(ctx context.Context) error {
	return cluster.WaitFor(ctx, "admission adds the label", func(ctx context.Context) error {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: "probe", Labels: map[string]string{"assay.dev/feature-request": "amx"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := s.api.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if p.Spec.NodeSelector[label] != "true" {
			return errors.New("the pod does not have the node selector")
		}
		return nil
	})
}

// place creates the pods, waits until they are bound, and returns how long that took.
func (s *story) place(ctx context.Context, file string) (string, error) {
	began := time.Now()
	if err := s.kubectl(ctx, "apply", "-f", s.file(file)); err != nil {
		return "", err
	}
	if err := s.placed(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%.1f s", time.Since(began).Seconds()), s.initialized(ctx)
}

// placed waits until the pods are bound, to machines with AMX.
func (s *story) placed(ctx context.Context) error {
	err := cluster.WaitFor(ctx, "all pods are bound", func(ctx context.Context) error {
		bound, why, err := s.bound(ctx)
		if err == nil && len(bound) < replicas {
			err = fmt.Errorf("%d of %d are; the others: %s", len(bound), replicas, why)
		}
		return err
	})
	if err != nil {
		return err
	}
	bound, _, err := s.bound(ctx)
	if err != nil {
		return err
	}
	for _, name := range bound {
		var node corev1.Node
		if err := s.api.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		if got := node.Labels[corev1.LabelInstanceTypeStable]; got != with {
			return fmt.Errorf("a pod that needs AMX is bound to node %s of the type %s", name, got)
		}
	}
	return nil
}
