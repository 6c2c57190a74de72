package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// evaluated is what assay eval prints for a node.
type evaluated struct {
	Node                string
	Labels, Annotations map[string]string
	ExtendedResources   map[string]string
	NodeConditions      map[string]string
	Taints              []corev1.Taint
	Failed              *rules.Failure
}

// values returns the keys with their values, as evaluate does.
func (e *evaluated) values() map[string]string {
	out := map[string]string{}
	for kind, all := range map[keys.Kind]map[string]string{
		keys.Label: e.Labels, keys.Annotation: e.Annotations, keys.Resource: e.ExtendedResources, keys.Condition: e.NodeConditions,
	} {
		for key, value := range all {
			out[string(kind)+" "+key] = value
		}
	}
	for _, t := range e.Taints {
		out[string(keys.Taint)+" "+t.Key+":"+string(t.Effect)] = t.Value
	}
	return out
}

// evaluateAll compares what the command line evaluates for all nodes, with the settings of the controller, with the reference.
func (w *world) evaluateAll(ctx context.Context, s state) error {
	if w.assay == "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, w.assay, "eval", "--nodes=all", "-o=json", "--kubeconfig="+w.Kubeconfig, //nolint:gosec // own program
		"--assay-namespace="+namespace, w.settings()).Output()
	if failed := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &failed) || failed.ExitCode() != 1) { // 1: a rule failed on a node
		return fmt.Errorf("assay eval: %w", err)
	}
	var list []evaluated
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("assay eval: %w", err)
	}
	p, compared := program(s.rules), 0
	for i := range list {
		node := s.nodes["/"+list[i].Node]
		if node == nil || list[i].Failed != nil {
			continue
		}
		compared++
		want, _ := evaluate(p, s.input(node, nil))
		have := list[i].values()
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if value, is := have[key]; !is || value != want[key] {
				return fmt.Errorf("%s: assay eval gives %s=%q (%t), the reference %q", node.Name, key, value, is, want[key])
			}
		}
		if len(have) != len(want) {
			return fmt.Errorf("%s: assay eval gives %d keys, the reference %d", node.Name, len(have), len(want))
		}
	}
	if compared == 0 {
		return errors.New("assay eval evaluates none of the nodes")
	}
	return nil
}
