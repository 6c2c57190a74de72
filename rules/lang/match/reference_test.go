package match

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/version"
)

// reference is a second, simple implementation: it tests one element after the other and parses everything where it is used,
// without columns, bit sets or literals.
type reference struct {
	strict bool
}

func (r reference) eval(terms []Term, f *nfdv1alpha1.Features) (ok bool, matched []FeatureElements, failed bool) {
	for _, t := range terms {
		elements, ok, err := r.term(t, f)
		if err {
			return false, nil, true
		}
		if !ok {
			return false, nil, false
		}
		matched = append(matched, FeatureElements{Feature: t.Feature, Elements: elements})
	}
	return true, matched, false
}

func (r reference) term(t Term, f *nfdv1alpha1.Features) (elements []Element, ok, err bool) {
	name := strings.ToLower(t.Feature)
	flags, isFlags := f.Flags[name]
	attributes, isAttributes := f.Attributes[name]
	instances, isInstances := f.Instances[name]
	if !isFlags && !isAttributes && !isInstances {
		return nil, false, false
	}
	if t.Expressions != nil {
		matched := false
		if isFlags || isAttributes {
			list, ok, err := r.elements(t, flags.Elements, attributes.Elements, isFlags, isAttributes)
			if err {
				return nil, false, true
			}
			if ok {
				matched, elements = true, list
			}
		}
		for _, instance := range instances.Elements {
			ok, err := r.instance(t, instance.Attributes)
			if err {
				return nil, false, true
			}
			if ok {
				matched = true
				elements = append(elements, Element{Instance: facts.NewInstances([]map[string]string{instance.Attributes}).Row(0)})
			}
		}
		if !matched {
			return nil, false, false
		}
	}
	if t.Name == nil {
		return elements, true, false
	}
	matched := false
	all := map[string]bool{}
	for name := range flags.Elements {
		all[name] = true
	}
	for name := range attributes.Elements {
		all[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		ok, err := r.expression(t.Name, name, true, true)
		if err {
			return nil, false, true
		}
		if !ok {
			continue
		}
		matched = true
		if _, ok := flags.Elements[name]; ok {
			elements = append(elements, Element{Name: name})
		}
		if v, ok := attributes.Elements[name]; ok {
			elements = append(elements, Element{Name: name, Value: v, HasValue: true})
		}
	}
	for _, instance := range instances.Elements {
		for _, name := range slices.Sorted(maps.Keys(instance.Attributes)) {
			ok, err := r.expression(t.Name, name, true, true)
			if err && r.strict {
				return nil, false, true
			}
			if ok {
				matched = true
				elements = append(elements, Element{Instance: facts.NewInstances([]map[string]string{instance.Attributes}).Row(0)})
				break
			}
		}
	}
	return elements, matched, false
}

func (r reference) elements(t Term, flags map[string]nfdv1alpha1.Nil, attributes map[string]string, isFlags, isAttributes bool) (elements []Element, ok, err bool) {
	if len(t.Expressions) == 0 && !r.strict {
		for name := range flags {
			elements = append(elements, Element{Name: name})
		}
		for name, v := range attributes {
			elements = append(elements, Element{Name: name, Value: v, HasValue: true})
		}
		slices.SortFunc(elements, func(a, b Element) int {
			if c := strings.Compare(a.Name, b.Name); c != 0 {
				return c
			}
			return strings.Compare(fmt.Sprint(a.HasValue), fmt.Sprint(b.HasValue))
		})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Expressions)) {
		e := t.Expressions[name]
		flag, attribute := false, false
		if isFlags {
			_, exists := flags[name]
			flag, _ = r.expression(e, "", exists, false)
		}
		value, exists := attributes[name]
		if isAttributes {
			if attribute, err = r.expression(e, value, exists, true); err {
				return nil, false, true
			}
		}
		held := flag || attribute
		if e.Op == "DoesNotExist" {
			held = (flag || !isFlags) && (attribute || !isAttributes)
		}
		if !held {
			return nil, false, false
		}
		if flag {
			elements = append(elements, Element{Name: name})
		}
		if attribute {
			elements = append(elements, Element{Name: name, Value: value, HasValue: true})
		}
	}
	return elements, true, false
}

func (r reference) instance(t Term, attributes map[string]string) (ok, err bool) {
	for _, name := range slices.Sorted(maps.Keys(t.Expressions)) {
		value, exists := attributes[name]
		ok, err := r.expression(t.Expressions[name], value, exists, true)
		if err {
			return false, r.strict
		}
		if !ok {
			return false, false
		}
	}
	return true, false
}

func (r reference) expression(e *Expr, input string, exists, hasValue bool) (ok, err bool) {
	switch e.Op {
	case "":
		return true, false
	case "Exists":
		return exists, false
	case "DoesNotExist":
		return !exists, false
	}
	if !exists || !hasValue {
		return false, false
	}
	switch e.Op {
	case "In":
		return slices.Contains(e.Value, input), false
	case "NotIn":
		return !slices.Contains(e.Value, input), false
	case "IsTrue":
		return input == "true", false
	case "IsFalse":
		return input == "false", false
	case "InRegexp":
		for _, p := range e.Value {
			if regexp.MustCompile(p).MatchString(input) {
				return true, false
			}
		}
		return false, false
	}
	compare := func(bound string) (int, error) {
		if e.Type == "version" {
			parse := version.Parse
			if r.strict {
				parse = version.ParseStrict
			}
			v, err := parse(input)
			if err != nil {
				return 0, err
			}
			b, err := parse(bound)
			return v.Compare(b), err
		}
		v, err := strconv.Atoi(input)
		if err != nil {
			return 0, err
		}
		b, err := strconv.Atoi(bound)
		return v - b, err
	}
	low, e1 := compare(e.Value[0])
	high, e2 := compare(e.Value[len(e.Value)-1])
	if e1 != nil || e2 != nil {
		return false, true
	}
	switch e.Op {
	case "Gt":
		return low > 0, false
	case "Ge":
		return low >= 0, false
	case "Lt":
		return low < 0, false
	case "Le":
		return low <= 0, false
	case "GtLt":
		return low > 0 && high < 0, false
	case "GeLe":
		return low >= 0 && high <= 0, false
	}
	panic("operator " + e.Op)
}

// randomCases is the number of random lists of terms that both implementations evaluate.
const randomCases = 12_000

func TestAgreesWithReference(t *testing.T) {
	in := facts.NewInterner()
	matches := 0
	for seed := range uint64(randomCases) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		features, terms := g.features(), g.terms()
		src := facts.New(features, in)
		for _, strict := range []bool{false, true} {
			m, errs := Compile(nil, terms, Options{Strict: strict})
			if len(errs) > 0 {
				t.Fatalf("seed %d: %v", seed, errs.ToAggregate())
			}
			ok, matched, failed := reference{strict: strict}.eval(terms, features)
			got, err := m.Eval(src, true)
			if got.OK != ok || (err != nil) != failed {
				t.Fatalf("seed %d strict %v: got %v, %v, want %v, error %v\nterms %s\nfeatures %v", seed, strict, got.OK, err, ok, failed, dump(terms), features)
			}
			if diff := cmp.Diff(matched, got.Matched, cmpopts.EquateEmpty(), cmp.Transformer("printable", printable)); diff != "" {
				t.Fatalf("seed %d strict %v (-reference +got):\n%s\nterms %s\nfeatures %v", seed, strict, diff, dump(terms), features)
			}
			bare, bareErr := m.Eval(src, false)
			if bare.OK != got.OK || bare.Failed != got.Failed || fmt.Sprint(bareErr) != fmt.Sprint(err) || bare.Matched != nil {
				t.Fatalf("seed %d strict %v: collecting elements changes the answer\nterms %s\nfeatures %v", seed, strict, dump(terms), features)
			}
			compareTrace(t, m, src, got, err)
			if ok {
				matches++
			}
		}
	}
	if share := float64(matches) / (2 * randomCases); share < 0.1 || share > 0.9 {
		t.Errorf("%.0f %% of the random cases match: they do not test much", 100*share)
	}
}

// compareTrace compares a trace with the result.
func compareTrace(t *testing.T, m *Matcher, src facts.Source, got Result, err error) {
	t.Helper()
	first := -1
	for i, term := range m.Trace(src) {
		if !term.Held && first < 0 {
			first = i
		}
		if term.Held != (term.Reason == "") {
			t.Fatalf("a term that held (%v) has the reason %q", term.Held, term.Reason)
		}
		if i == got.Failed && err != nil && term.Error != err.Error() {
			t.Fatalf("the trace has the error %q, Eval %q", term.Error, err)
		}
	}
	if first != got.Failed {
		t.Fatalf("the trace says that term %d fails first, Eval says %d", first, got.Failed)
	}
	if why := m.Why(src); (why == "") != got.OK {
		t.Fatalf("why is %q for OK %v", why, got.OK)
	}
}

func dump(terms []Term) string {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintf(&b, "\n  %s has %v", t.Feature, t.Expressions != nil)
		for name, e := range t.Expressions {
			fmt.Fprintf(&b, " %s:%v", name, *e)
		}
		if t.Name != nil {
			fmt.Fprintf(&b, " name:%v", *t.Name)
		}
	}
	return b.String()
}

// generator generates small sets of facts, and terms that often refer to them.
type generator struct{ *rand.Rand }

var (
	someFeatures = []string{"cpu.a", "cpu.b", "pci.device"}
	someNames    = []string{"a", "b", "ab", "abc", "7", "true"}
	someValues   = []string{"", "a", "b", "abc", "xabcx", "true", "false", "-3", "5", "7", "12", "1.2", "v1.10", "5.14.0-1.el8_6.x86_64", "a\nb", "é"}
	somePatterns = []string{"", "a", "^a", "c$", "^abc$", "^a|b$", "^(a|b)c?$", "[ab]c", ".*b.*", "^.*b", "^a.*", "(?i)ABC", "^a[^b]*$", "\\d+", "^(true|false)$", "b|", "(?m)^b$", "a.c", "^a.*c$", "(?s)a.b", "\\w\\b", "^ab?$|x"}
)

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

func (g generator) features() *nfdv1alpha1.Features {
	f := &nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{}}
	for _, name := range someFeatures {
		if g.IntN(2) == 0 {
			set := map[string]nfdv1alpha1.Nil{}
			for range g.IntN(5) {
				set[pick(g, someNames)] = nfdv1alpha1.Nil{}
			}
			f.Flags[name] = nfdv1alpha1.FlagFeatureSet{Elements: set}
		}
		if g.IntN(2) == 0 {
			f.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: g.attributes()}
		}
		if g.IntN(2) == 0 {
			list := make([]nfdv1alpha1.InstanceFeature, g.IntN(6))
			if g.IntN(20) == 0 {
				list = make([]nfdv1alpha1.InstanceFeature, 300)
			}
			for i := range list {
				list[i].Attributes = g.attributes()
			}
			f.Instances[name] = nfdv1alpha1.InstanceFeatureSet{Elements: list}
		}
	}
	return f
}

func (g generator) attributes() map[string]string {
	m := map[string]string{}
	for range g.IntN(5) {
		m[pick(g, someNames)] = pick(g, someValues)
	}
	return m
}

func (g generator) terms() []Term {
	terms := make([]Term, 1+g.IntN(2))
	for i := range terms {
		t := &terms[i]
		t.Feature = pick(g, []string{"cpu.a", "Cpu.B", "pci.device", "pci.device", "missing"})
		if g.IntN(4) > 0 {
			t.HasExpressions, t.Expressions = true, map[string]*Expr{}
			for range g.IntN(4) {
				t.Expressions[pick(g, someNames)] = g.expression()
			}
		}
		if g.IntN(3) == 0 {
			t.Name = g.expression()
		}
	}
	return terms
}

func (g generator) expression() *Expr {
	e := &Expr{Op: pick(g, []nfdv1alpha1.MatchOp{"", "Exists", "Exists", "DoesNotExist", "In", "NotIn", "InRegexp", "InRegexp", "IsTrue", "IsFalse", "Gt", "Ge", "Lt", "Le", "GtLt", "GeLe"})}
	switch e.Op {
	case "In", "NotIn":
		for range 1 + g.IntN(15) {
			e.Value = append(e.Value, pick(g, append(someValues, someNames...)))
		}
	case "InRegexp":
		for range 1 + g.IntN(3) {
			e.Value = append(e.Value, pick(g, somePatterns))
		}
	case "Gt", "Ge", "Lt", "Le":
		e.Value = []string{pick(g, []string{"-3", "5", "+7", "007"})}
	case "GtLt", "GeLe":
		e.Value = []string{pick(g, []string{"-3", "5"}), pick(g, []string{"7", "12"})}
	}
	if find(e.Op).bounds != nil && g.IntN(2) == 0 {
		e.Type = "version"
		for i := range e.Value {
			e.Value[i] = pick(g, []string{"1.2", "1.10", "v5.14", "7"})
		}
	}
	return e
}
