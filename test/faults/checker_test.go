//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// TestTheCheckerFindsViolations gives it the versions of a Node: each is the labels on it, and the recorded ones after a bar if
// they differ.
func TestTheCheckerFindsViolations(t *testing.T) {
	for name, test := range map[string]struct {
		versions []string
		want     string // part of the only violation; "": none
	}{
		"Grows":            {[]string{"", "a=1", "a=1 b=1", "a=2 b=1"}, ""},
		"Vanishes":         {[]string{"a=1 b=1", "b=1"}, "label faults.example.com/a vanished"},
		"RuleDeleted":      {[]string{"a=1 gone=1", "a=1"}, ""},
		"ComesBack":        {[]string{"gone=1", "", "gone=1"}, "label faults.example.com/gone came back"},
		"GoesBack":         {[]string{"a=9", "a=10", "a=9"}, "went back from 10 to 9"},
		"NotRecorded":      {[]string{"a=1", "a=1 b=1|a"}, "b is on the Node, and not recorded"},
		"RecordedOnly":     {[]string{"a=1", "a=1|a,b"}, "b is recorded, and not on the Node"},
		"OlderVersionLate": {[]string{"a=1", "a=2 b=1", "@1 a=1", "a=2 b=1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker(func(key string) bool { return strings.HasSuffix(key, "/gone") })
			for i, text := range test.versions {
				c.look(nodeOf(i+1, text))
			}
			all, _ := c.Violations()
			switch {
			case test.want == "" && len(all) > 0:
				t.Errorf("got %v, want none", all)
			case test.want != "" && (len(all) != 1 || !strings.Contains(all[0].what, test.want)):
				t.Errorf("got %v, want one: %s", all, test.want)
			}
		})
	}
}

// nodeOf returns a Node as written in TestTheCheckerFindsViolations; @N is another version.
func nodeOf(version int, text string) *corev1.Node {
	if rest, ok := strings.CutPrefix(text, "@"); ok {
		_, _ = fmt.Sscanf(rest, "%d", &version)
		_, text, _ = strings.Cut(rest, " ")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", ResourceVersion: fmt.Sprint(version), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	labels, record, separate := strings.Cut(text, "|")
	var recorded []string
	for entry := range strings.FieldsSeq(labels) {
		key, value, _ := strings.Cut(entry, "=")
		node.Labels[prefix+key] = value
		recorded = append(recorded, prefix+key)
	}
	if separate {
		recorded = nil
		for key := range strings.SplitSeq(record, ",") {
			recorded = append(recorded, prefix+key)
		}
	}
	node.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] = strings.Join(recorded, ",")
	return node
}

func TestTheCheckerKnowsAllKindsOfKeys(t *testing.T) {
	node := nodeOf(1, "a=1")
	node.Annotations[prefix+"b"], node.Annotations[nfdv1alpha1.FeatureAnnotationsAnnotation] = "x", prefix+"b"
	node.Status.Capacity = corev1.ResourceList{prefix + "c": resource.MustParse("4")}
	node.Annotations[nfdv1alpha1.ExtendedResourcesAnnotation] = prefix + "c"
	node.Spec.Taints = []corev1.Taint{{Key: prefix + "d", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
	node.Annotations[nfdv1alpha1.TaintsAnnotation] = prefix + "d=yes:NoSchedule"
	c := newChecker(func(string) bool { return false })
	c.look(node)
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "2"}}
	if all, _ := c.Violations(); len(all) != 0 {
		t.Errorf("got %v, want none", all)
	}
	c.look(bare)
	if all, _ := c.Violations(); len(all) != 4 {
		t.Errorf("got %v, want one for each kind", all)
	}
}
