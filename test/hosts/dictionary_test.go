package hosts_test

import (
	"slices"
	"testing"

	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/test/hosts"
)

// Every value of every machine must be of the kind that the dictionary declares, and what always exists must exist: warnings about rules
// follow from it.
func TestTheDictionaryIsTrueOfEveryMachine(t *testing.T) {
	seen := map[*dictionary.Element]bool{}
	for _, name := range hosts.Names {
		report := discover(t, open(t, name))
		check := func(feature string, is dictionary.Type, elements map[string]string) {
			f := dictionary.Find(feature)
			if !f.Is(is) {
				t.Errorf("%s: %s has another type than in the dictionary", name, feature)
				return
			}
			for element, value := range elements {
				e := f.Element(element)
				if e == nil && !f.Any() {
					t.Errorf("%s: %s has no %s in the dictionary", name, feature, element)
					continue
				}
				seen[e] = true
				if e != nil && e.Kind != dictionary.Flag && !e.Has(value) {
					t.Errorf("%s: %s %s is %q, which is not %s", name, feature, element, value, e.Says())
				}
			}
			for i := range f.Elements {
				if e := &f.Elements[i]; e.Always && len(elements) > 0 && is != dictionary.Flags {
					if _, ok := elements[e.Name]; !ok {
						t.Errorf("%s: %s has no %s, which always exists in the dictionary", name, feature, e.Name)
					}
				}
			}
		}
		for feature, set := range report.Features.Flags {
			elements := map[string]string{}
			for e := range set.Elements {
				elements[e] = ""
			}
			check(feature, dictionary.Flags, elements)
		}
		for feature, set := range report.Features.Attributes {
			check(feature, dictionary.Attributes, set.Elements)
		}
		for feature, set := range report.Features.Instances {
			if f := dictionary.Find(feature); f != nil && f.Most > 0 && len(set.Elements) > f.Most {
				t.Errorf("%s: %s has %d instances, more than in the dictionary", name, feature, len(set.Elements))
			}
			for _, e := range set.Elements {
				check(feature, dictionary.Instances, e.Attributes)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("the machines show %d elements of the dictionary only", len(seen))
	}
}

// Typical values are those of real machines, so they must be of the kind of their element.
func TestTypicalValuesAreOfTheirKind(t *testing.T) {
	if !slices.IsSorted(dictionary.Names()) {
		t.Error("the features are not sorted")
	}
	for _, f := range dictionary.All() {
		for i := range f.Elements {
			e := &f.Elements[i]
			for _, v := range e.Typical() {
				if v != "" && !e.Has(v) {
					t.Errorf("%s %s: %q is not %s", f.Name, e.Name, v, e.Says())
				}
			}
		}
	}
}
