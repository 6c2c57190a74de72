package node

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// TestATaintOfAnotherClientSurvivesTheWriteOfTaints: another client adds a taint just before the controller writes its own. A patch of
// taints replaces all of them.
func TestATaintOfAnotherClientSurvivesTheWriteOfTaints(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "ours", Effect: corev1.TaintEffectNoSchedule}}})
	others := 0
	w.fail = func(body string) error {
		if strings.Contains(body, `"taints"`) && others == 0 {
			others++
			w.do(http.MethodPatch, "/api/v1/nodes/n", apiserver.Object{
				"spec": apiserver.Object{"taints": []any{apiserver.Object{"key": "other", "effect": "NoExecute"}}},
			})
		}
		return nil
	}
	if _, err := w.try(); !errors.Is(err, decide.ErrConflict) {
		t.Errorf("a write of taints that are out of date returns %v, want %v", err, decide.ErrConflict)
	}
	w.pass()
	if got := w.node().Spec.Taints; others != 1 || len(got) != 2 {
		t.Errorf("the node has the taints %v, want that of another client and ours", got)
	}
}
