package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/keys"
)

func TestARecordSurvivesItsText(t *testing.T) {
	r := &Record{Whole: true}
	a, b := Owner{ID: "1", Name: "a", Print: "x"}, Owner{ID: "2", Name: "b", Print: "y"}
	shared, own := KeyOf(keys.Label, "shared"), KeyOf(keys.Label, "own")
	r.Add(a, shared)
	r.Add(b, shared)
	r.Add(b, own)
	r.Objects["1"].Rolled = "x"
	got, err := Decode(r.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got.Encode() != r.Encode() || !got.Whole {
		t.Errorf("%s became %s", r.Encode(), got.Encode())
	}
	if owners := got.Owners(shared); len(owners) != 2 || owners[0] != a || owners[1].Print != "" {
		t.Errorf("owners of the shared key: %v", owners)
	}
	if owners := got.Owners(KeyOf(keys.Annotation, "own")); len(owners) != 0 {
		t.Errorf("a label counts as an annotation: %v", owners)
	}
	if !got.Covers(a, shared) || got.Covers(a, own) || got.Covers(Owner{ID: "1", Print: "z"}, shared) {
		t.Error("the record does not cover what it should, or more")
	}
}

func TestARecordIsBounded(t *testing.T) {
	r := &Record{Whole: true}
	for i := range 400 {
		g := Owner{ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Name: strings.Repeat("n", 253), Print: "0123456789abcdef"}
		for j := range 3 + i*10 {
			r.Add(g, Key(j))
		}
	}
	text := r.Encode()
	got, err := Decode(text)
	if err != nil || len(text) > MaxRecord {
		t.Fatalf("%d bytes: %v", len(text), err)
	}
	if got.Whole || len(got.Objects) < 100 || len(got.Objects) == 400 {
		t.Errorf("whole: %v, with %d objects", got.Whole, len(got.Objects))
	}
	for id, e := range r.Objects {
		if len(e.Keys) > MaxKeys {
			t.Errorf("%d keys of %s", len(e.Keys), id)
		}
	}
}

func TestATextThatIsNotARecordIsAnError(t *testing.T) {
	for _, text := range []string{"x", `{"objects":{"a":{"keys":"?"}}}`, `{"objects":{"a":{"keys":"AA=="}}}`} {
		if _, err := Decode(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// An incomplete record does not prove that an object missing from it is new.
func TestAnIncompleteRecordDoesNotMakeObjectsLookEdited(t *testing.T) {
	r := &Record{}
	r.Add(Owner{ID: "1", Print: "x"}, 1)
	if got := r.Owners(1); len(got) != 1 || got[0].Print != "x" {
		t.Errorf("owners are %v", got)
	}
}
