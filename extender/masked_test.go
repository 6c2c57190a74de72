package extender_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestMaskedValuesAreNotRead tries to read masked values as a tenant who can create requests and pods: by guessing, by preferences,
// and from explanations for one node.
func TestMaskedValuesAreNotRead(t *testing.T) {
	d := decider(t)
	d.Index.Put(index.Node{Input: rules.Input{
		Node: rules.Node{Name: "n2"},
		Facts: facts.FromMap(map[string]facts.Feature{
			"local.label": {Attributes: facts.NewAttributes(map[string]string{"bmc-password": "hunter2", "rack": "r1"})},
			"usb.device":  {Instances: facts.NewInstances([]map[string]string{{"vendor": "1050", "serial-token": "hunter2"}})},
		}, nil),
	}})
	ask := func(op nfdv1alpha1.MatchOp, values ...string) *extender.Explanation {
		guess := assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature:          "local.label",
			MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"bmc-password": {Op: op, Value: values}},
		}}}
		d.Requirements.PutRequest(&assayv1alpha1.NodeFeatureRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "guess"},
			Spec:       assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{Required: &guess}},
		})
		e := d.Explain(pod("ml", map[string]string{"assay.dev/feature-request": "guess"}, nil), "n2")
		return &e
	}
	for op, values := range map[nfdv1alpha1.MatchOp][]string{
		nfdv1alpha1.MatchIn: {"hunter2"}, nfdv1alpha1.MatchNotIn: {"other"}, nfdv1alpha1.MatchInRegexp: {"^h"}, nfdv1alpha1.MatchGt: {"1"},
	} {
		e := ask(op, values...)
		if len(e.Origins) == 0 || e.Matching != 0 || len(e.Findings) != 1 || e.Findings[0].Why != "local.label/bmc-password is masked: it can be matched by Exists and DoesNotExist only" ||
			!strings.HasSuffix(e.Findings[0].Lacks, "(never holds: the value is masked)") {
			t.Errorf("%s: %+v", op, e)
		}
	}
	if e := ask(nfdv1alpha1.MatchExists); e.Matching != 1 {
		t.Errorf("Exists: %+v", e)
	}
	addr, _ := serve(t, d, extender.Options{})
	resp, err := http.Get("http://" + addr + "/v1/nodes/n2/features")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), `"bmc-password":"(not shown)"`) ||
		!strings.Contains(string(text), `"rack":"r1"`) || !strings.Contains(string(text), `"vendor":"1050"`) {
		t.Errorf("%v: %s", err, text)
	}
}
