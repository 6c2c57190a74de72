package node

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// TestActionLogKeepsItsLevel: a message is logged at the level that the rule asks for, and debug is hidden by default.
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
	(&Reconciler{}).say(ctx, &corev1.Node{}, nil, outcome)
	want := `level=INFO msg="Rule logged a message" rule=r/r message=b
level=WARN msg="Rule logged a message" rule=r/r message=c
level=ERROR msg="Rule logged a message" rule=r/r message=d
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
