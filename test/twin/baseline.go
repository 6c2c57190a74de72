//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
)

// baselineName is the name of the NodeBaseline: nodes of a pool have equal levels, below a limit that changes.
const baselineName = "twin"

// baseline returns the NodeBaseline with a limit.
func (w *world) baseline(limit int) (*assayv1alpha1.NodeBaseline, error) {
	b := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: baselineName}}
	w.limit = limit
	return b, yaml.UnmarshalStrict([]byte(fmt.Sprintf(`{
	  require: [{name: limit, conditions: [{op: lt, args: {values: ["{@twin.attr.level}", %d]}}]}],
	  uniform: [{name: equal, value: "{@twin.attr.level}"}], within: [pool]}`, limit)), &b.Spec)
}

// editBaseline changes the limit.
func (w *world) editBaseline(ctx context.Context) error {
	b, err := w.baseline(1 + w.draw.IntN(9))
	if err != nil {
		return err
	}
	patch, err := yaml.Marshal(map[string]any{"spec": map[string]any{"require": b.Spec.Require}})
	if err != nil {
		return err
	}
	if patch, err = yaml.YAMLToJSON(patch); err != nil {
		return err
	}
	return w.client.Patch(ctx, b, client.RawPatch("application/merge-patch+json", patch))
}

// judged is what a plain evaluation says: the numbers of nodes and the deviations, as node and check.
type judged struct {
	conforming, deviating, unknown int
	deviations                     []string
}

// judge evaluates the baseline, one question after the other. A node whose worker's object is not there is unknown.
func (w *world) judge(s state) (out judged) {
	levels, pools := map[string]string{}, map[string][]string{}
	for _, n := range w.nodes {
		node, own := s.nodes["/"+n.name], s.features[namespace+"/"+n.name]
		if own == nil || own.DeletionTimestamp != nil || slices.ContainsFunc(own.OwnerReferences, ownedByAnother(node)) {
			out.unknown++
			continue
		}
		level := "absent"
		if f := s.input(node, nil).Facts.Feature("twin.attr"); f != nil && f.Attributes != nil {
			if value, ok := f.Attributes.Get("level"); ok {
				level = value
			}
		}
		levels[n.name] = level
		pools[node.Labels["pool"]] = append(pools[node.Labels["pool"]], n.name)
	}
	deviating := map[string]bool{}
	fail := func(node, check string) {
		deviating[node] = true
		out.deviations = append(out.deviations, check+" "+node)
	}
	for name, level := range levels {
		if number, err := strconv.Atoi(level); err != nil || number >= w.limit {
			fail(name, "limit")
		}
	}
	for _, members := range pools {
		for _, level := range levels {
			same := 0
			for _, name := range members {
				if levels[name] == level {
					same++
				}
			}
			if 2*same <= len(members) {
				continue
			}
			for _, name := range members {
				if levels[name] != level {
					fail(name, "equal")
				}
			}
			break
		}
	}
	slices.Sort(out.deviations)
	out.deviations = slices.Compact(out.deviations)
	out.deviating = len(deviating)
	out.conforming = len(levels) - len(deviating)
	return out
}

// maxDeviations is the number of deviations that a status has.
const maxDeviations = 50

// baselineIsRight waits until the status of the baseline is what the plain evaluation says.
func (w *world) baselineIsRight(ctx context.Context, s state) error {
	want := w.judge(s)
	return cluster.WaitFor(ctx, "the status of the NodeBaseline", func(ctx context.Context) error {
		b := &assayv1alpha1.NodeBaseline{}
		if err := w.client.Get(ctx, client.ObjectKey{Name: baselineName}, b); err != nil {
			return err
		}
		st := &b.Status
		if st.Nodes == nil || st.ObservedGeneration != b.Generation {
			return fmt.Errorf("the status is of generation %d, want %d", st.ObservedGeneration, b.Generation)
		}
		var got []string
		for _, d := range st.Deviations {
			got = append(got, d.Check+" "+d.Node)
		}
		all := len(got) + int(st.Omitted)
		wrong := slices.DeleteFunc(slices.Clone(got), func(d string) bool { return slices.Contains(want.deviations, d) })
		numbers := [3]int{int(*st.Conforming), int(*st.Deviating), int(*st.Unknown)}
		if numbers != [3]int{want.conforming, want.deviating, want.unknown} || all != len(want.deviations) || len(got) != min(all, maxDeviations) || len(wrong) > 0 {
			return fmt.Errorf("%v nodes conform, deviate and are unknown, with %d deviations, of which %v are wrong; want %+v", numbers, all, wrong, want)
		}
		return nil
	})
}
