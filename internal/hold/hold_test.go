package hold_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/keys"
)

// TestAllKeysOfANodeAreRead: an Event named five keys in its message, and the command line knew nothing of the others.
func TestAllKeysOfANodeAreRead(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)
	list := []hold.Hold{{Reason: hold.Flapping, Until: at, Why: "it changed"}, {Reason: hold.Flapping, Why: "it changed, too", Keys: []string{"label a.io/b"}}}
	for i := range 140 {
		list[0].Keys = append(list[0].Keys, hold.Key(keys.Label, fmt.Sprintf("feature.node.kubernetes.io/key-%03d", i)))
	}
	e := hold.Event("blue", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}, list, at)
	if diff := cmp.Diff(list, hold.Read(e)); diff != "" {
		t.Errorf("read (-published +read):\n%s", diff)
	}
	if want := "n1.blue.assay.keyflapping"; e.Name != want {
		t.Errorf("the name is %s, want %s", e.Name, want)
	}
	if want := "Left as it is until 2026-03-01T12:00:07Z: it changed: label feature.node.kubernetes.io/key-000, "; !strings.HasPrefix(e.Message, want) ||
		!strings.Contains(e.Message, "and 135 more") || len(e.Message) > 1024 {
		t.Errorf("the message is %q", e.Message)
	}
	e.ReportingController = "someone.else"
	if got := hold.Read(e); got != nil {
		t.Errorf("of another client: %+v", got)
	}
}

// TestManyLongKeysFit in an Event: the rest is counted.
func TestManyLongKeysFit(t *testing.T) {
	h := hold.Hold{Reason: hold.Removal, Why: strings.Repeat("w", 5000)}
	for i := range 1000 {
		h.Keys = append(h.Keys, fmt.Sprintf("label %s/%04d", strings.Repeat("x", 250), i))
	}
	e := hold.Event("", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 250)}}, []hold.Hold{h, h}, time.Now())
	if n := len(e.Annotations[hold.Annotation]); n > hold.MaxBytes {
		t.Errorf("%d bytes", n)
	}
	got := hold.Read(e)
	if len(got) != 1 || len(got[0].Keys) < 50 || len(got[0].Keys)+got[0].More != 1000 {
		t.Errorf("%d holds with %d keys and %d more", len(got), len(got[0].Keys), got[0].More)
	}
	if len(e.Name) > 253 {
		t.Errorf("a name of %d bytes", len(e.Name))
	}
}

// A limit was applied in the order of the alphabet: a hundred flags of the processor hid the labels of rules.
func TestAMessageNamesTheImportantKeys(t *testing.T) {
	var list []string
	for i := range 100 {
		list = append(list, hold.Key(keys.Label, fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.F%02d", i)))
	}
	list = append(list, hold.Key(keys.Label, "feature.node.kubernetes.io/pci-10de.present"), hold.Key(keys.Label, "vendor.example.com/gpu"),
		hold.Key(keys.Taint, "vendor.example.com/gpu:NoSchedule"), hold.Key(keys.Annotation, "vendor.example.com/gpu"))
	const want = "taint vendor.example.com/gpu:NoSchedule, label vendor.example.com/gpu, label feature.node.kubernetes.io/pci-10de.present, " +
		"label feature.node.kubernetes.io/cpu-cpuid.F00, label feature.node.kubernetes.io/cpu-cpuid.F01, and 99 more"
	if got := hold.Some(list); got != want {
		t.Errorf("%s", got)
	}
}

func TestAMessageNamesFewKeys(t *testing.T) {
	for n, want := range map[int]string{1: "a", hold.MaxKeys: "a, a, a, a, a", hold.MaxKeys + 2: "a, a, a, a, a, and 2 more"} {
		list := make([]string, n)
		for i := range list {
			list[i] = "a"
		}
		if got := hold.Some(list); got != want {
			t.Errorf("%d keys are %q, want %q", n, got, want)
		}
	}
}
