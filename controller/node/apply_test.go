package node

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/hold"
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

// TestARejectedTaintIsLeftOut: one rejected taint kept all others of the node from being written.
func TestARejectedTaintIsLeftOut(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: prefix + key, Effect: effect}
	}
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "1"}, Taints: []corev1.Taint{
		taint("closed", corev1.TaintEffectNoSchedule), taint("open", corev1.TaintEffectNoSchedule),
	}})
	rejected := 0
	w.fail = func(body string) error {
		if !strings.Contains(body, `"key":"`+prefix+`closed"`) {
			return nil
		}
		rejected++
		err := &field.Error{Type: field.ErrorTypeInvalid, Field: "metadata.taints[0].key", Detail: "must be valid"}
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", field.ErrorList{err})
	}
	for range 3 { // it is not retried
		if _, err := w.try(); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.node(); rejected != 1 || len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != prefix+"open" || got.Labels[prefix+"a"] != "1" {
		t.Errorf("rejected %d times, want once; the node has the taints %v and the labels %v", rejected, got.Spec.Taints, got.Labels)
	}
	if got := w.node().Annotations[nfdv1alpha1.TaintsAnnotation]; got != prefix+"open:NoSchedule" {
		t.Errorf("the record lists %q, want the taint that was written", got)
	}
	var refused []string
	for _, h := range w.holds(hold.Refused) {
		refused = append(refused, h.Keys...)
	}
	if want := []string{"taint " + prefix + "closed:NoSchedule"}; !slices.Equal(refused, want) {
		t.Errorf("held as refused are %v, want %v", refused, want)
	}
}
