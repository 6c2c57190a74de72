package webhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/warning"
)

// TestWarningsAreShortenedOnlyIfTheAPIServerWouldCutThem: one long warning is shown as it is, with its path. If all warnings together
// are too long, each is shortened, and keeps the annotation that it is about.
func TestWarningsAreShortenedOnlyIfTheAPIServerWouldCutThem(t *testing.T) {
	const path = "spec.jobTemplate.spec.template.metadata.annotations[assay.dev/required-features].matchFeatures[0].matchExpressions[vendor].value[0]"
	long := func(i int) warning.Warning {
		return warning.Warning{Path: path, Message: fmt.Sprintf("%d ", i) + strings.Repeat("long ", 80)}
	}
	one := long(0)
	if got, want := worst([]warning.Warning{one}), []string{path + ": " + one.Message}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var many []warning.Warning
	for i := range maxWarnings {
		many = append(many, long(i))
	}
	got := worst(many)
	if len(got) != len(many) {
		t.Fatalf("%d warnings, want %d", len(got), len(many))
	}
	for i, w := range got {
		if n := len([]rune(w)); n > maxWarningLen {
			t.Errorf("%d characters: %s", n, w)
		}
		if !strings.Contains(w, fmt.Sprintf("metadata.annotations[assay.dev/required-features]…[vendor].value[0]: %d long", i)) {
			t.Errorf("got %s", w)
		}
	}
}

// TestTheMostSevereOfManyWarningsAreShown: kubectl prints a line for each, and the rest is counted.
func TestTheMostSevereOfManyWarningsAreShown(t *testing.T) {
	all := []warning.Warning{{Rank: 2, Message: "mild"}}
	var want []string
	for i := range maxWarnings + 5 {
		w := warning.Warning{Rank: 1, Message: fmt.Sprintf("severe %d", i)}
		all, want = append(all, w, w), append(want, w.Message)
	}
	want = append(want[:maxWarnings-1], "and 7 more warnings; assay lint shows them all")
	if got := worst(all); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestALongValueIsCutInARejection: the message of the API server would contain all of it.
func TestALongValueIsCutInARejection(t *testing.T) {
	v := &verdict{}
	v.Errors = field.ErrorList{field.Invalid(field.NewPath("spec"), strings.Repeat("x", 2*maxValueLen), "wrong")}
	if got := v.response(&admissionv1.AdmissionRequest{}).Result.Message; strings.Contains(got, strings.Repeat("x", maxValueLen+1)) || !strings.Contains(got, "xxx") {
		t.Errorf("the message is %s", got)
	}
}
