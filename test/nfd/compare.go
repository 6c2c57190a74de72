//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// outputs are what a master gave, by node or group and by key.
type outputs map[string]map[string]string

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

// inKey finds the number of the form in a key or a rule.
var inKey = regexp.MustCompile(`f(\d\d)-\d\d`)

// outputs reads the Nodes and groups, and counts the Nodes with an output of the last rule.
func (w *world) outputs(ctx context.Context) (all outputs, done int, err error) {
	all = outputs{}
	var nodes corev1.NodeList
	if err := w.api.List(ctx, &nodes); err != nil {
		return nil, 0, err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		keys := keysOf(n)
		all[n.Name] = keys
		if strings.Contains(strings.Join(slices.Collect(maps.Keys(keys)), " "), doneKey) {
			done++
		}
	}
	var groups nfdv1alpha1.NodeFeatureGroupList
	if err := w.api.List(ctx, &groups, client.InNamespace(own)); err != nil {
		return nil, 0, err
	}
	for _, g := range groups.Items {
		members := map[string]string{}
		for _, n := range g.Status.Nodes {
			members["member "+n.Name] = "1"
		}
		all["group "+g.Name] = members
	}
	return all, done, nil
}

// records is the prefix of the annotations that record which keys a master owns.
const records = nfdv1alpha1.BookkeepingNamespace + "/"

// keysOf returns what a master can have given a Node. Resources are those of the capacity; records are sorted.
func keysOf(n *corev1.Node) map[string]string {
	out := map[string]string{}
	for k, v := range n.Labels {
		out["label "+k] = v
	}
	for k, v := range n.Annotations {
		switch {
		case strings.HasPrefix(k, "assay.dev/"), strings.HasPrefix(k, "node.alpha.kubernetes.io/"):
			continue // Assay's own, and Kubernetes'
		case strings.HasPrefix(k, records):
			list := strings.Split(v, ",")
			slices.Sort(list)
			for _, key := range list {
				out["record "+strings.TrimPrefix(k, records)+" "+key] = "1"
			}
			continue
		}
		out["annotation "+k] = v
	}
	for _, t := range n.Spec.Taints {
		out["taint "+t.Key+":"+string(t.Effect)] = t.Value
	}
	for k, v := range n.Status.Capacity {
		out["resource "+string(k)] = v.String()
	}
	return out
}

// report prints the differences by form, and returns how many no row describes.
func (w *world) report(what string, want, got outputs, strict bool) int {
	keys, described, open := 0, map[string]int{}, map[string][]string{}
	for _, on := range slices.Sorted(maps.Keys(want)) {
		all := maps.Clone(want[on])
		maps.Copy(all, got[on])
		for _, key := range slices.Sorted(maps.Keys(all)) {
			keys++
			a, inA := want[on][key]
			b, inB := got[on][key]
			if a == b && inA == inB {
				continue
			}
			by, rows := w.rows(on, key, strict)
			if len(rows) > 0 {
				described[by]++
				continue
			}
			show := func(v string, in bool) string {
				if !in {
					return "nothing"
				}
				return fmt.Sprintf("%q", v)
			}
			open[by] = append(open[by], fmt.Sprintf("%s: %s: NFD %s, Assay %s", on, key, show(a, inA), show(b, inB)))
		}
	}
	count := 0
	for _, n := range described {
		count += n
	}
	failures := 0
	for _, list := range open {
		failures += len(list)
	}
	fmt.Printf("%s: %d keys of %d nodes and %d groups, %d differences with a row (of %d forms), %d without\n",
		what, keys, len(w.nodes), len(w.groups), count, len(described), failures)
	for _, by := range slices.Sorted(maps.Keys(described)) {
		fmt.Printf("  with a row: %s: %d\n", by, described[by])
	}
	for _, by := range slices.Sorted(maps.Keys(open)) {
		fmt.Printf("  WITHOUT A ROW: %s: %d\n", by, len(open[by]))
		w.explain(open[by])
	}
	return failures
}

// rows returns the form of rules that gives a key, and the rows that describe its differences.
func (w *world) rows(on, key string, strict bool) (by string, rows []string) {
	if member, ok := strings.CutPrefix(key, "member "); ok && strings.HasPrefix(on, "group ") {
		if !w.employed[member] {
			return "groups", []string{nameless}
		}
		return "groups", nil
	}
	if strings.HasSuffix(key, " feature.node.kubernetes.io") || strings.HasSuffix(key, " feature.node.kubernetes.io/feature.node.kubernetes.io") {
		return "a label without a name", []string{emptyName}
	}
	f := formOf(key)
	switch {
	case f == nil:
		return "labels that NodeFeatures request, and others", nil
	case strict:
		return f.name, f.strictly
	}
	return f.name, f.differs
}

// maxExamples is the maximum number of differences of a form that are printed.
const maxExamples = 4

// explain prints some differences, and the rule of the first.
func (w *world) explain(list []string) {
	for _, line := range list[:min(len(list), maxExamples)] {
		fmt.Printf("    %s\n", line)
	}
	if rule := w.rules[inKey.FindString(list[0])]; rule != nil {
		if text, err := yaml.Marshal(rule.Spec.Rules); err == nil {
			fmt.Printf("      %s\n", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n      "))
		}
	}
}

// compareWorkers runs both workers on this machine, and returns how many features, elements and labels of NFD Assay lacks or has with
// another value.
func (w *world) compareWorkers(ctx context.Context) (int, error) {
	node, err := os.Hostname() // the name that assay scan gives this machine
	if err != nil {
		return 0, err
	}
	if err := w.api.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
		return 0, err
	}
	worker := exec.CommandContext(ctx, filepath.Join(w.bin, "nfd-worker"), "-oneshot", "-kubeconfig="+w.Kubeconfig, "-no-owner-refs", "-config="+os.DevNull)
	worker.Env = append(os.Environ(), "NODE_NAME="+node, "KUBERNETES_NAMESPACE="+own)
	if out, err := worker.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("nfd-worker: %w\n%s", err, out)
	}
	var nfd, assay nfdv1alpha1.NodeFeature
	if err := w.api.Get(ctx, client.ObjectKey{Namespace: own, Name: node}, &nfd); err != nil {
		return 0, err
	}
	scan := exec.CommandContext(ctx, filepath.Join(w.bin, "assay"), "scan", "--output=nodefeature")
	out, err := scan.Output()
	if err != nil {
		return 0, fmt.Errorf("assay scan: %w", err)
	}
	if err := yaml.Unmarshal(out, &assay); err != nil {
		return 0, fmt.Errorf("assay scan: %w", err)
	}
	want, got := elementsOf(&nfd.Spec), elementsOf(&assay.Spec)
	var open []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := got[key]; !ok || value != want[key] {
			open = append(open, fmt.Sprintf("%s: NFD %q, Assay %q", key, want[key], cmp.Or(value, "nothing")))
		}
	}
	extra := 0
	for key := range got {
		if _, ok := want[key]; !ok {
			extra++
		}
	}
	fmt.Printf("workers: %d elements and labels of NFD on this machine, %d are missing or differ; %d more of Assay\n", len(want), len(open), extra)
	for _, line := range open {
		fmt.Printf("  %s\n", line)
	}
	return len(open), nil
}

// elementsOf returns all elements and labels with their values. Instances are counted by their content.
func elementsOf(s *nfdv1alpha1.NodeFeatureSpec) map[string]string {
	out := map[string]string{}
	for name, set := range s.Features.Flags {
		for e := range set.Elements {
			out["flag "+name+" "+e] = ""
		}
	}
	for name, set := range s.Features.Attributes {
		for e, v := range set.Elements {
			out["attribute "+name+" "+e] = v
		}
	}
	for name, set := range s.Features.Instances {
		for i, device := range set.Elements {
			for e, v := range device.Attributes {
				out[fmt.Sprintf("instance %s %s %s", name, cmp.Or(device.Attributes["name"], fmt.Sprint(i)), e)] = v
			}
		}
	}
	for name, v := range s.Labels {
		out["label "+strings.TrimPrefix(name, "feature.node.kubernetes.io/")] = v
	}
	return out
}
