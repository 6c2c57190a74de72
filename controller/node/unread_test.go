package node

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// withUnread returns the worker's object of a boot, in which sources have not been read.
func withUnread(boot string, features map[string]facts.Feature, labels M, sources ...string) *nodefeature.NodeFeature {
	all := maps.Clone(attributes(nfdv1alpha1.BootFeature, M{nfdv1alpha1.BootElement: boot}))
	maps.Copy(all, features)
	if len(sources) > 0 {
		all[nfdv1alpha1.UnreadFeature] = facts.Feature{Flags: facts.NewFlags(sources...)}
	}
	f := published("n", all)
	f.Spec.Labels = labels
	return f
}

// TestASourceThatIsNotReadTakesNothingAway: after a boot, the worker publishes without a source that does not answer. Labels, taints and
// conditions that follow from it stay, no rule gives another value because of it, and the node is not ready, until the source answers.
func TestASourceThatIsNotReadTakesNothingAway(t *testing.T) {
	w := newPasses(t, withReady)
	exists := func(feature, name string, r nfdv1alpha1.Rule) nfdv1alpha1.Rule {
		r.MatchFeatures = nfdv1alpha1.FeatureMatcher{{Feature: feature, MatchExpressions: &nfdv1alpha1.MatchExpressionSet{name: {Op: nfdv1alpha1.MatchExists}}}}
		return r
	}
	rule := func() {
		w.rule("r",
			nfdv1alpha1.Rule{Labels: M{"gpu": "none"}},
			exists("pci.device", "vendor", nfdv1alpha1.Rule{
				Labels: M{"gpu": "some", "pci": "1"}, Taints: []corev1.Taint{{Key: prefix + "gpu", Effect: corev1.TaintEffectNoSchedule}},
			}),
			exists("usb.device", "vendor", nfdv1alpha1.Rule{Labels: M{"usb": "1"}}),
		)
	}
	rule()
	pci, usb := attributes("pci.device", M{"vendor": "10de"}), attributes("usb.device", M{"vendor": "1"})
	both := maps.Clone(pci)
	maps.Copy(both, usb)
	w.boots("b1")
	w.publish(withUnread("b1", both, M{"pci-10de.present": "true", "usb-1.present": "true"}))
	w.pass()
	w.pass()
	had := M{"gpu": "some", "pci": "1", "usb": "1", "pci-10de.present": "true", "usb-1.present": "true"}
	w.hasLabels("at first", had)
	w.isReady("at first", "True ")

	w.boots("b2")
	w.publish(withUnread("b2", attributes("usb.other", M{"x": "1"}), nil, "pci"))
	kept := M{"gpu": "some", "pci": "1", "usb": "", "pci-10de.present": "true", "usb-1.present": ""}
	for range 2 {
		w.pass()
		w.hasLabels("without the source pci", kept)
		if !w.tainted(prefix + "gpu") {
			t.Error("the taint is removed")
		}
		w.isReady("without the source pci", "False SourcesUnread: These sources of the worker have not been read since the node booted: pci.")
		w.restart(withReady) // the next process has not seen what gave the labels
		rule()
	}
	w.publish(withUnread("b2", attributes("usb.other", M{"x": "1"}), nil))
	for range 2 {
		w.pass()
	}
	w.hasLabels("with an answer that there is nothing", M{"gpu": "none", "pci": "", "pci-10de.present": ""})
	if w.tainted(prefix + "gpu") {
		t.Error("the taint stays although the device is gone")
	}
	w.isReady("with an answer", "True ")
}

// TestANewNodeGetsNoValueThatAnUnreadSourceMayChange: what is known is written at once.
func TestANewNodeGetsNoValueThatAnUnreadSourceMayChange(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r",
		nfdv1alpha1.Rule{Labels: M{"gpu": "none", "known": "1"}},
		nfdv1alpha1.Rule{Labels: M{"gpu": "some"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature: "pci.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"vendor": {Op: nfdv1alpha1.MatchExists}},
		}}},
	)
	w.boots("b1")
	w.publish(withUnread("b1", nil, nil, "pci"))
	w.pass()
	w.hasLabels("without the source pci", M{"gpu": "", "known": "1"})
	if ready := w.ready(); !strings.HasPrefix(ready, "False SourcesUnread") {
		t.Errorf("the node is ready: %s", ready)
	}
	w.publish(withUnread("b1", nil, nil))
	w.pass()
	w.hasLabels("with an answer", M{"gpu": "none", "known": "1"})
}

// TestAFailureStaysWhileASourceIsNotRead: whether the rule still fails the node is unknown.
func TestAFailureStaysWhileASourceIsNotRead(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r",
		nfdv1alpha1.Rule{
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "pci.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"bad": {Op: nfdv1alpha1.MatchExists}}}},
			Actions:       []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken: twice"}`)}}},
		},
		nfdv1alpha1.Rule{Labels: M{"label": "1"}},
	)
	const failed = "False Failed: The action fail of rule r/a keeps the node as it was: broken: twice"
	w.boots("b1")
	w.publish(withUnread("b1", attributes("pci.device", M{"bad": "1"}), nil))
	w.pass()
	w.isReady("with a failure", failed)
	w.boots("b2")
	w.publish(withUnread("b2", nil, nil, "pci"))
	w.pass()
	w.hasLabels("without the source pci", M{"label": ""})
	w.isReady("without the source pci", failed)
	w.publish(withUnread("b2", nil, nil))
	w.pass()
	w.hasLabels("with an answer", M{"label": "1"})
}
