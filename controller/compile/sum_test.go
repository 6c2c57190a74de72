package compile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// objects are the NodeFeatureRules of a fake API server.
type objects map[string]*nfdv1alpha1.NodeFeatureRule

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if known := o[key.Name]; known != nil {
		*into.(*nfdv1alpha1.NodeFeatureRule) = *known
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodefeaturerules"}, key.Name)
}

func (o objects) List(context.Context, client.ObjectList, ...client.ListOption) error {
	panic("nothing lists them")
}

// put writes an object with a compiled size of about so many kilobytes and a creation time in seconds.
func (o objects) put(name string, second int64, kilobytes int) {
	labels := map[string]string{}
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(second, 0), Generation: 1,
	}}
	if old := o[name]; old != nil {
		rule.Generation = old.Generation + 1
	}
	for i := range kilobytes {
		labels[fmt.Sprintf("l%d", i)] = strings.Repeat("x", 60)
		if len(labels) == rules.MaxOutputs || i == kilobytes-1 {
			rule.Spec.Rules = append(rule.Spec.Rules, nfdv1alpha1.Rule{Name: fmt.Sprint(i), Labels: labels})
			labels = map[string]string{}
		}
	}
	o[name] = rule
}

func (o objects) rules() *Rules { return newRules(o, o, Options{}, nil) }

// inForce returns the names of the objects whose rules are active.
func (r *Rules) inForce() string {
	var names []string
	for _, o := range r.Registry().All() {
		names = append(names, o.Set.Name)
	}
	return strings.Join(names, " ")
}

func (r *Rules) must(t *testing.T, names ...string) {
	t.Helper()
	if err := r.refresh(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
}

// TestTheOldestObjectsFit creates six objects in different orders: five of them together are too large, and the fifth by age does
// not fit, but the sixth does.
func TestTheOldestObjectsFit(t *testing.T) {
	server := objects{}
	for i, name := range []string{"f", "b", "d", "a"} {
		server.put(name, int64(100+i), 4500)
	}
	server.put("c", 103, 4500) // in the same second as a
	server.put("e", 200, 400)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for range 20 {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		r := server.rules()
		for _, name := range names {
			r.must(t, name)
		}
		if got := r.inForce(); got != "a b d e f" {
			t.Fatalf("arrived as %v, %q are used, want the oldest that fit", names, got)
		}
		c := r.Object("c")
		if c.Refused == nil || c.Refused.Reason != "TooManyRules" || !strings.Contains(c.Refused.Message, "may take 16777216 bytes of memory") {
			t.Fatalf("the author of c reads %v", c.Refused)
		}
	}
}

func TestObjectsComeBackWhenThereIsRoom(t *testing.T) {
	server := objects{}
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		server.put(name, int64(i), 4500)
	}
	r := server.rules()
	var told []string
	r.OnObject(func(name string) { told = append(told, name) })
	r.must(t, "a", "b", "c", "d", "e", "f")
	if got := r.inForce(); got != "a b c d" {
		t.Fatalf("%q are used", got)
	}
	for _, step := range []struct {
		reason string
		change func()
		name   string
		want   string
	}{
		{"the next one takes the room of one that is deleted", func() { delete(server, "b") }, "b", "a c d e"},
		{"an older one that grows keeps its place", func() { server.put("g", -1, 4500) }, "g", "a c d g"},
		{"a smaller one makes room", func() { server.put("a", 0, 300) }, "a", "a c d e g"},
		{"and another one", func() { server.put("c", 2, 300) }, "c", "a c d e f g"},
	} {
		told = nil
		step.change()
		r.must(t, step.name)
		if got := r.inForce(); got != step.want {
			t.Errorf("%s: %q are used, want %q", step.reason, got, step.want)
		}
		if !slices.Contains(told, step.name) {
			t.Errorf("%s: only %v are reported on", step.reason, told)
		}
	}
}

// TestWhatDoesNotFitIsNotCompiled creates a large object when the budget is used up.
func TestWhatDoesNotFitIsNotCompiled(t *testing.T) {
	server := objects{}
	for i := range 4 {
		server.put(fmt.Sprint("a", i), int64(i), 4900)
	}
	server.put("z", 10, 4500)
	r := server.rules()
	r.must(t, "a0", "a1", "a2", "a3")
	if allocations := testing.AllocsPerRun(3, func() { r.must(t, "z") }); allocations > 15_000 { // compiling it takes 50,000
		t.Errorf("%.0f allocations for an object that is not used", allocations)
	}
}
