package hold_test

import (
	"testing"
	"time"

	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/rules/keys"
)

// TestMessagesAreRead: the command line finds the time and the keys in what the controller writes.
func TestMessagesAreRead(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)
	for _, reason := range []string{hold.Removal, hold.Flapping, hold.Contested, hold.Refused} {
		text := hold.Message(reason, at.In(time.FixedZone("", 3600)), "why: it does", []string{
			hold.Key(keys.Label, "a.io/one") + " (given by r)", hold.Key(keys.Taint, "a.io/two:NoSchedule"),
		})
		if got, why, ok := hold.Read(text); !ok || !got.Equal(at) || why != "why: it does" {
			t.Errorf("%q lasts until %s because of %q", text, got, why)
		}
		for _, named := range []struct {
			kind keys.Kind
			key  string
			want bool
		}{
			{keys.Label, "a.io/one", true},
			{keys.Label, "a.io/on", false},
			{keys.Annotation, "a.io/one", false},
			{keys.Taint, "a.io/two:NoSchedule", true},
			{keys.Taint, "a.io/two", false},
			{keys.Label, "one", false},
		} {
			if got := hold.Names(text, named.kind, named.key); got != named.want {
				t.Errorf("%q names %s %s: %t", text, named.kind, named.key, got)
			}
		}
		if hold.More(text) {
			t.Errorf("%q leaves keys out", text)
		}
	}
	if _, _, ok := hold.Read("a rule's own event"); ok {
		t.Error("a time in a string without one")
	}
}

func TestAMessageNamesFewKeys(t *testing.T) {
	for n, want := range map[int]string{1: "a", hold.MaxKeys: "a, a, a, a, a", hold.MaxKeys + 2: "a, a, a, a, a, and 2 more"} {
		list := make([]string, n)
		for i := range list {
			list[i] = "a"
		}
		got := hold.Some(list)
		if got != want {
			t.Errorf("%d keys are %q, want %q", n, got, want)
		}
		if hold.More(hold.Message(hold.Removal, time.Time{}, "x", list)) != (n > hold.MaxKeys) {
			t.Errorf("%q", got)
		}
	}
}

// TestAKeyInTheMiddleOfAnotherOne: the name of one key begins with the other one.
func TestAKeyInTheMiddleOfAnotherOne(t *testing.T) {
	text := "Not written until 2026-03-01T12:00:07Z: x: label a.io/one-more, label a.io/one"
	if !hold.Names(text, keys.Label, "a.io/one") || !hold.Names(text, keys.Label, "a.io/one-more") {
		t.Error("a key is not found")
	}
}
