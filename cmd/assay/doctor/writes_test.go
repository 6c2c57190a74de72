package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
)

// TestRulesOutsideOfTheAllowedNamespacesDrawAWarning: the API server rejects what they write, after the webhook has accepted them.
func TestRulesOutsideOfTheAllowedNamespacesDrawAWarning(t *testing.T) {
	rule := nfdv1alpha1.NodeFeatureRule{}
	rule.Name = "mixed"
	rule.Spec.Rules = []nfdv1alpha1.Rule{{
		Labels:            map[string]string{"bare": "1", "feature.node.kubernetes.io/a": "1", "vendor.io/a": "1", "other.io/label": "1", "@vars.key": "1"},
		Annotations:       map[string]string{"a.example.org/b": "1", "example.org/annotation": "1"},
		ExtendedResources: map[string]string{"other.io/cards": "1"},
		Taints:            []corev1.Taint{{Key: "vendor.io/t"}, {Key: "other.io/taint"}},
		NodeConditions:    []nfdv1alpha1.NodeCondition{{Type: "other.io/Ready"}},
	}}
	for name, test := range map[string]struct {
		namespaces []string
		want       string // empty: no finding
	}{
		"Some": {[]string{"vendor.io", ".example.org"}, "NodeFeatureRule mixed writes example.org/annotation, other.io/Ready, other.io/cards, other.io/label, other.io/taint, which"},
		"All":  {[]string{"vendor.io", ".example.org", "example.org", "other.io"}, ""},
		"None": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := charts.Policies(charts.PolicySettings{Namespaces: test.namespaces})["node-writes.yaml"]
			first, _, _ := strings.Cut(string(file), "\n---\n")
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			if err := yaml.Unmarshal([]byte(first), &policy); err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/validatingadmissionpolicies/assay-node-writes"):
					_ = json.NewEncoder(w).Encode(policy)
				case strings.HasSuffix(r.URL.Path, "/nodefeaturerules"):
					_ = json.NewEncoder(w).Encode(nfdv1alpha1.NodeFeatureRuleList{Items: []nfdv1alpha1.NodeFeatureRule{rule}})
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			t.Cleanup(s.Close)
			e := &examination{c: clientOf(t, s.URL)}
			if err := e.writes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if test.want == "" && len(e.found) > 0 || test.want != "" && (len(e.found) != 1 || !strings.HasPrefix(e.found[0].Message, test.want)) {
				t.Errorf("got %v, want %q", e.found, test.want)
			}
		})
	}
}
