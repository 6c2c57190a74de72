package webhook

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/warning"
)

// ratchet converts errors to warnings if the old object had them too, in rules that did not change. An object that became invalid
// because Assay became stricter can still be edited elsewhere, by users and by GitOps tools.
//
// An error in an unchanged rule remains an error if the old object did not have it: then something that the rule depends on has
// changed, such as a variable of an earlier rule, or a rule of the same name was added.
func (v *verdict) ratchet(spec, old *nfdv1alpha1.NodeFeatureRuleSpec, oldErrs field.ErrorList) {
	before := map[string]bool{}
	for _, e := range oldErrs {
		before[identity(e, e.Field)] = true
	}
	was := map[int]int{}
	if spec != nil && old != nil {
		was = unchanged(spec, old)
	}
	kept := v.Errors[:0:0]
	for _, e := range v.Errors {
		if path, ok := oldPath(e.Field, was); ok && before[identity(e, path)] {
			v.Warnings = append(v.Warnings, warning.Warning{
				Path: e.Field, Message: "still wrong, as before: " + e.ErrorBody(), Rank: warning.Defect,
			})
			continue
		}
		kept = append(kept, e)
	}
	v.Errors = kept
}

// identity returns a key that is the same for equal errors.
func identity(e *field.Error, path string) string {
	return fmt.Sprintf("%s\x00%s\x00%v\x00%s", path, e.Type, e.BadValue, e.Detail)
}

// unchanged maps the index of each rule that the old object had too to its old index.
func unchanged(spec, old *nfdv1alpha1.NodeFeatureRuleSpec) map[int]int {
	byName := map[string][]int{}
	for i := range old.Rules {
		byName[old.Rules[i].Name] = append(byName[old.Rules[i].Name], i)
	}
	out := map[int]int{}
	for i := range spec.Rules {
		for n, j := range byName[spec.Rules[i].Name] {
			if reflect.DeepEqual(spec.Rules[i], old.Rules[j]) {
				out[i] = j
				byName[spec.Rules[i].Name] = append(byName[spec.Rules[i].Name][:n:n], byName[spec.Rules[i].Name][n+1:]...)
				break
			}
		}
	}
	return out
}

var rulePath = regexp.MustCompile(`^spec\.(rules|featureGroupRules)\[(\d+)\](.*)$`)

// oldPath returns the path of a field of an unchanged rule in the old object. Fields outside of rules keep their path: comparing
// the errors is enough, since an error contains the value.
func oldPath(path string, was map[int]int) (string, bool) {
	m := rulePath.FindStringSubmatch(path)
	if m == nil {
		return path, true
	}
	i, err := strconv.Atoi(m[2])
	if err != nil {
		return "", false
	}
	j, ok := was[i]
	return fmt.Sprintf("spec.%s[%d]%s", m[1], j, m[3]), ok
}
