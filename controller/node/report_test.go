package node

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// TestActionLogKeepsItsLevel: a message is logged at the level that the rule specifies, and debug is hidden by default.
func TestActionLogKeepsItsLevel(t *testing.T) {
	var rule nfdv1alpha1.NodeFeatureRule
	err := yaml.Unmarshal([]byte(`
metadata: {name: r}
spec:
  rules:
  - name: r
    actions:
    - {op: log, args: {msg: a, level: debug}}
    - {op: log, args: {msg: b}}
    - {op: log, args: {msg: c, level: warning}}
    - {op: log, args: {msg: d, level: error}}
`), &rule)
	if err != nil {
		t.Fatal(err)
	}
	set, report := rules.Compile(&rule, rules.Options{})
	if len(report.Errors) > 0 {
		t.Fatal(report.Errors)
	}
	outcome := rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "n"}})
	var b bytes.Buffer
	handler := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	ctx := logf.IntoContext(context.Background(), logr.FromSlogHandler(handler))
	(&Reconciler{}).emitMessages(ctx, &corev1.Node{}, nil, outcome)
	want := `level=INFO msg="Rule logged a message" rule=r/r message=b
level=WARN msg="Rule logged a message" rule=r/r message=c
level=ERROR msg="Rule logged a message" rule=r/r message=d
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// emitAfter emits the messages of an outcome in the pass after that of another one, if that is not nil.
func emitAfter(t *testing.T, events record.EventRecorder, before, now *rules.Outcome) {
	t.Helper()
	var emitted map[any]bool
	if before != nil {
		emitted = (&Reconciler{events: record.NewFakeRecorder(9)}).emitMessages(t.Context(), &corev1.Node{}, nil, before)
	}
	(&Reconciler{events: events}).emitMessages(t.Context(), &corev1.Node{}, emitted, now)
}

// TestAFailureIsReportedOnce: an Event is emitted for a new failure only, also if no earlier rule failed a node.
func TestAFailureIsReportedOnce(t *testing.T) {
	outcome := func(spec string) *rules.Outcome {
		var rule nfdv1alpha1.NodeFeatureRule
		if err := yaml.Unmarshal([]byte("metadata: {name: r}\nspec: {rules: [{name: r, actions: ["+spec+"]}]}"), &rule); err != nil {
			t.Fatal(err)
		}
		set, report := rules.Compile(&rule, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors.ToAggregate())
		}
		return rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "n"}})
	}
	failed, other, fine := outcome("{op: fail, args: {msg: no GPU}}"), outcome("{op: fail, args: {msg: no disk}}"), outcome("")
	for name, tc := range map[string]struct {
		before, now *rules.Outcome
		want        int
	}{
		"TheFirstTime": {nil, failed, 1}, "AfterNoFailure": {fine, failed, 1}, "Again": {failed, failed, 0},
		"ForAnotherReason": {failed, other, 1}, "NoMore": {failed, fine, 0},
	} {
		events := record.NewFakeRecorder(9)
		emitAfter(t, events, tc.before, tc.now)
		if got := len(events.Events); got != tc.want {
			t.Errorf("%s: %d events, want %d", name, got, tc.want)
		}
	}
}

// outcomeOf returns the outcome of one rule.
func outcomeOf(t *testing.T, rule nfdv1alpha1.Rule) *rules.Outcome {
	t.Helper()
	rule.Name = "r"
	set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return rules.Link(rules.Options{}, set).Eval(rules.Input{})
}
