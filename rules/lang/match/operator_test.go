package match

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// TestOperators tests each operator on an attribute with a value, on a missing attribute, and on a flag.
func TestOperators(t *testing.T) {
	const missing = "\x00missing"
	tests := map[string]struct {
		expr    Expr
		holds   []string // values, or missing
		not     []string
		errs    []string
		onFlag  bool
		errsNFD []string // additional errors with --nfd-strict
	}{
		"AnythingHolds":     {expr: Expr{Op: ""}, holds: []string{"", "x", missing}, onFlag: true},
		"InIsExact":         {expr: Expr{Op: "In", Value: []string{"a", "b"}}, holds: []string{"a", "b"}, not: []string{"A", "ab", "", missing}},
		"InOfMany":          {expr: Expr{Op: "In", Value: strings.Split("abcdefghijklmnop", "")}, holds: []string{"a", "p"}, not: []string{"q", "", missing}},
		"NotInOfMissing":    {expr: Expr{Op: "NotIn", Value: []string{"a"}}, holds: []string{"b", ""}, not: []string{"a", missing}},
		"RegexpSearches":    {expr: Expr{Op: "InRegexp", Value: []string{"z", "b+"}}, holds: []string{"abbc", "z"}, not: []string{"ac", missing}},
		"RegexpAnchors":     {expr: Expr{Op: "InRegexp", Value: []string{"^ab$"}}, holds: []string{"ab"}, not: []string{"xab", "abx", "ab\n"}},
		"RegexpLines":       {expr: Expr{Op: "InRegexp", Value: []string{"(?m)^b$"}}, holds: []string{"a\nb"}, not: []string{"a b"}},
		"RegexpDot":         {expr: Expr{Op: "InRegexp", Value: []string{"^a.*b"}}, holds: []string{"a x b"}, not: []string{"a\nb"}},
		"Exists":            {expr: Expr{Op: "Exists"}, holds: []string{"", "x"}, not: []string{missing}, onFlag: true},
		"DoesNotExist":      {expr: Expr{Op: "DoesNotExist"}, holds: []string{missing}, not: []string{"", "x"}},
		"IsTrueIsText":      {expr: Expr{Op: "IsTrue"}, holds: []string{"true"}, not: []string{"True", "1", "false", "", missing}},
		"IsFalseIsText":     {expr: Expr{Op: "IsFalse"}, holds: []string{"false"}, not: []string{"False", "0", "true", "", missing}},
		"Gt":                {expr: Expr{Op: "Gt", Value: []string{"5"}}, holds: []string{"6", "+6", "007"}, not: []string{"5", "-6", missing}},
		"Ge":                {expr: Expr{Op: "Ge", Value: []string{"5"}}, holds: []string{"5", "6"}, not: []string{"4", missing}},
		"Lt":                {expr: Expr{Op: "Lt", Value: []string{"-3"}}, holds: []string{"-4", "-9223372036854775808"}, not: []string{"-3", "5", missing}},
		"Le":                {expr: Expr{Op: "Le", Value: []string{"5"}}, holds: []string{"5", "-1"}, not: []string{"6", "9223372036854775807", missing}},
		"GtLtExcludes":      {expr: Expr{Op: "GtLt", Value: []string{"1", "5"}}, holds: []string{"2", "4"}, not: []string{"1", "5", missing}},
		"GeLeIncludes":      {expr: Expr{Op: "GeLe", Value: []string{"1", "5"}}, holds: []string{"1", "5"}, not: []string{"0", "6", missing}},
		"NoInteger":         {expr: Expr{Op: "Gt", Value: []string{"5"}}, errs: []string{"", " 3", "0x10", "1.0", "9223372036854775808", "-9223372036854775809", "NaN", "1e999", "٣", "+", "1_000"}, not: []string{missing}},
		"Version":           {expr: Expr{Op: "Ge", Value: []string{"5.10"}, Type: "version"}, holds: []string{"5.10", "v5.10.1", "22.04", "5.15.0-122-generic"}, not: []string{"5.9", "5", missing}},
		"VersionLoose":      {expr: Expr{Op: "Lt", Value: []string{"6"}, Type: "version"}, holds: []string{"5.14.0-362.el9"}, errs: []string{"1.x", "", "x"}, errsNFD: []string{"5.14.0-362.el9.x86_64", "1.2.3.4", "5.10+", "1.2.3-01"}},
		"VersionOfDots":     {expr: Expr{Op: "Lt", Value: []string{"6"}, Type: "version"}, errs: []string{strings.Repeat(".", 100_000), "-1"}},
		"VersionRange":      {expr: Expr{Op: "GeLe", Value: []string{"1.2", "1.2"}, Type: "version"}, holds: []string{"1.2.0", "1.2.0-rc1"}, not: []string{"1.2.1"}},
		"VersionBackwards":  {expr: Expr{Op: "GtLt", Value: []string{"2", "1"}, Type: "version"}, not: []string{"1", "1.5", "2"}},
		"TypeElsewhere":     {expr: Expr{Op: "In", Value: []string{"a"}, Type: "nonsense"}, holds: []string{"a"}, not: []string{"b"}},
		"RegexpLiteralUTF8": {expr: Expr{Op: "InRegexp", Value: []string{"é"}}, holds: []string{"café"}, not: []string{"cafe"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check := func(strict bool, value string, want bool, wantErr bool) {
				t.Helper()
				m := compile(t, []Term{{Feature: "a.b", Expressions: map[string]*Expr{"k": &tc.expr}}}, Options{Strict: strict})
				attributes := map[string]string{"k": value}
				if value == missing {
					attributes = nil
				}
				res, err := m.Eval(source(map[string]facts.Feature{"a.b": {Attributes: facts.NewAttributes(attributes)}}), false)
				if res.OK != want || (err != nil) != wantErr {
					t.Errorf("strict %v: on %.40q: %v, %v; want %v, error %v", strict, value, res.OK, err, want, wantErr)
				}
				if problem := (*EvalError)(nil); err != nil && (!errors.As(err, &problem) || problem.Key != "k" || len(err.Error()) > 500) {
					t.Errorf("on %.40q: the error says %.500q", value, err)
				}
			}
			for _, v := range tc.holds {
				check(false, v, true, false)
				check(true, v, true, false)
			}
			for _, v := range tc.not {
				check(false, v, false, false)
				check(true, v, false, false)
			}
			for _, v := range tc.errs {
				check(false, v, false, true)
				check(true, v, false, true)
			}
			for _, v := range tc.errsNFD {
				check(false, v, true, false)
				check(true, v, false, true)
			}
			m := compile(t, []Term{{Feature: "a.b", Expressions: map[string]*Expr{"k": &tc.expr}}}, Options{})
			if res, err := m.Eval(source(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("k")}}), false); res.OK != tc.onFlag || err != nil {
				t.Errorf("on a flag: %v, %v; want %v", res.OK, err, tc.onFlag)
			}
		})
	}
}

func source(features map[string]facts.Feature) *facts.Facts { return facts.FromMap(features, nil) }

func TestCompileErrors(t *testing.T) {
	one := func(e *Expr) []Term { return []Term{{Feature: "a.b", Expressions: map[string]*Expr{"class": e}}} }
	at := "matchFeatures[0].matchExpressions[class]"
	tests := map[string]struct {
		terms []Term
		want  []string // the prefix of each error, and after " … " a string that it must contain
	}{
		"NoFeature":            {[]Term{{}}, []string{"matchFeatures[0].feature: Required"}},
		"BlankInFeature":       {[]Term{{Feature: "cpu.cpuid "}}, []string{"matchFeatures[0].feature: Invalid … remove the spaces"}},
		"NilExpression":        {one(nil), []string{at + ": Required … {op: Exists}"}},
		"NoValueForIn":         {one(&Expr{Op: "In"}), []string{at + `.value: Required … did you write values:?`}},
		"NoValueForGt":         {one(&Expr{Op: "Gt"}), []string{at + `.value: Required … exactly one value; did you write values:?`}},
		"TwoValuesForGt":       {one(&Expr{Op: "Gt", Value: []string{"1", "2"}}), []string{at + ".value: Invalid … takes exactly one value, not 2"}},
		"OneValueForGtLt":      {one(&Expr{Op: "GtLt", Value: []string{"1"}}), []string{at + ".value: Invalid … takes exactly 2 values, not 1"}},
		"ValueForExists":       {one(&Expr{Op: "Exists", Value: []string{"1"}}), []string{at + ".value: Invalid … takes no value, not 1"}},
		"ValueForIsTrue":       {one(&Expr{Op: "IsTrue", Value: []string{"1"}}), []string{at + ".value: Invalid … takes no value"}},
		"ValueForAnything":     {one(&Expr{Value: []string{"1"}}), []string{at + ".value: Invalid … takes no value"}},
		"OpMisspelt":           {one(&Expr{Op: "DoesNotExists"}), []string{at + `.op: Unsupported value: "DoesNotExists" … did you mean DoesNotExist?`}},
		"OpOfLowerCase":        {one(&Expr{Op: "inRegExp"}), []string{at + ".op: Unsupported … did you mean InRegexp?"}},
		"OpOfElsewhere":        {one(&Expr{Op: ">="}), []string{at + ".op: Unsupported … did you mean Ge?"}},
		"OpUnknown":            {one(&Expr{Op: "frobnicate"}), []string{at + ".op: Unsupported … the operators are DoesNotExist, Exists,"}},
		"NoInteger":            {one(&Expr{Op: "Gt", Value: []string{"many"}}), []string{at + `.value[0]: Invalid value: "many" … compares integers`}},
		"VersionWithoutType":   {one(&Expr{Op: "Gt", Value: []string{"1.2"}}), []string{at + `.value[0]: Invalid … add "type: version"`}},
		"NoVersion":            {one(&Expr{Op: "Gt", Value: []string{"1.x"}, Type: "version"}), []string{at + ".value[0]: Invalid … compares versions"}},
		"TypeUnknown":          {one(&Expr{Op: "Gt", Value: []string{"1"}, Type: "float"}), []string{at + `.type: Unsupported value: "float" … "version"`}},
		"BoundsBackwards":      {one(&Expr{Op: "GtLt", Value: []string{"5", "1"}}), []string{at + ".value: Invalid … smaller one first"}},
		"BoundsEqual":          {one(&Expr{Op: "GeLe", Value: []string{"5", "5"}}), []string{at + ".value: Invalid … {op: In}"}},
		"RegexpBroken":         {one(&Expr{Op: "InRegexp", Value: []string{"a", "(b"}}), []string{at + `.value[1]: Invalid value: "(b" … missing closing )`}},
		"RegexpLookahead":      {one(&Expr{Op: "InRegexp", Value: []string{"(?=a)"}}), []string{at + ".value[0]: Invalid … not a regular expression"}},
		"RegexpRepeats":        {one(&Expr{Op: "InRegexp", Value: []string{"(.{1,1000}){1,1000}"}}), []string{at + ".value[0]: Invalid … invalid repeat count"}},
		"RegexpGrows":          {one(&Expr{Op: "InRegexp", Value: []string{strings.Repeat("a{1000}", 100)}}), []string{at + ".value[0]: Invalid … more than 10000 steps"}},
		"RegexpLong":           {one(&Expr{Op: "InRegexp", Value: []string{strings.Repeat("a", 1<<20)}}), []string{at + ".value[0]: Too long"}},
		"RegexpNestsDeep":      {one(&Expr{Op: "InRegexp", Value: []string{strings.Repeat("(", 500) + strings.Repeat(")", 500) + "("}}), []string{at + ".value[0]: Invalid"}},
		"RegexpStars":          {one(&Expr{Op: "InRegexp", Value: []string{"(a*)*b"}}), nil},
		"ManyValues":           {one(&Expr{Op: "In", Value: make([]string, 100_000)}), []string{at + ".value: Too many"}},
		"AsManyAsAllowed":      {one(&Expr{Op: "In", Value: make([]string, MaxValues)}), nil},
		"OneMoreThanAllowed":   {one(&Expr{Op: "In", Value: make([]string, MaxValues+1)}), []string{at + ".value: Too many"}},
		"AsManyTermsAsAllowed": {slices.Repeat([]Term{{Feature: "a.b"}}, MaxTerms), nil},
		"NotUTF8":              {one(&Expr{Op: "In", Value: []string{"\xff"}}), []string{at + ".value[0]: Invalid … UTF-8"}},
		"LongName":             {[]Term{{Feature: strings.Repeat("a", 2000)}}, []string{"matchFeatures[0].feature: Too long"}},
		"ManyTerms":            {make([]Term, MaxTerms+1), []string{"matchFeatures: Too many"}},
		"MatchName":            {[]Term{{Feature: "a.b", Name: &Expr{Op: "In"}}}, []string{"matchFeatures[0].matchName.value: Required"}},
		"AllAtOnceSortedByKey": {[]Term{{Feature: "a", Expressions: map[string]*Expr{"z": {Op: "In"}, "b": {Op: "x"}, "a": {Op: "InRegexp", Value: []string{"(", "a", "["}}}}, {Name: &Expr{Op: "Gt"}}}, []string{"matchFeatures[0].matchExpressions[a].value[0]", "matchFeatures[0].matchExpressions[a].value[2]", "matchFeatures[0].matchExpressions[b].op", "matchFeatures[0].matchExpressions[z].value", "matchFeatures[1].feature", "matchFeatures[1].matchName.value"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, errs := Compile(field.NewPath("matchFeatures"), tc.terms, Options{})
			if (m == nil) != (len(tc.want) > 0) || len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %d errors", errs, len(tc.want))
			}
			for i, want := range tc.want {
				begin, contain, _ := strings.Cut(want, " … ")
				if got := errs[i].Error(); !strings.HasPrefix(got, begin) || !strings.Contains(got, contain) || len(got) > 1000 {
					t.Errorf("error %d is\n\t%.1000s\nwant\n\t%s", i, got, want)
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	m, errs := Compile(field.NewPath("matchFeatures"), []Term{
		{Feature: "a.b", Expressions: map[string]*Expr{
			"v": {Op: "GtLt", Value: []string{"2.0", "1.0"}, Type: "version"},
			"t": {Op: "In", Value: []string{"1"}, Type: "version"},
			"w": {Op: "GeLe", Value: []string{"1.0", "1.0"}, Type: "version"},
		}},
		{Feature: "a.b", Name: &Expr{Op: "DoesNotExist"}},
	}, Options{})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := []warning.Warning{
		{Path: "matchFeatures[0].matchExpressions[t].type", Message: "In compares text and ignores the type", Rank: warning.Suspicious},
		{Path: "matchFeatures[0].matchExpressions[v].value", Message: "never holds: the first bound is above the second", Rank: warning.Suspicious},
		{Path: "matchFeatures[1].matchName.op", Message: "DoesNotExist never holds here: it is evaluated on names that exist", Rank: warning.Suspicious},
	}
	if diff := cmp.Diff(want, m.Warnings()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReads(t *testing.T) {
	m := compile(t, []Term{{Feature: "PCI.Device"}, {Feature: "cpu.cpuid"}, {Feature: "pci.device"}}, Options{})
	if diff := cmp.Diff([]string{"cpu.cpuid", "pci.device"}, m.Reads()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if res, err := compile(t, nil, Options{}).Eval(nil, true); !res.OK || err != nil {
		t.Errorf("no terms: %v, %v; want a match", res, err)
	}
}

// TestLiteralsReplaceAutomata lists patterns that need no automaton.
func TestLiteralsReplaceAutomata(t *testing.T) {
	tests := map[string][]pattern{
		"abc":            {{form: contains, literal: "abc"}},
		"^abc":           {{form: begins, literal: "abc", prefix: "abc"}},
		"abc$":           {{form: ends, literal: "abc"}},
		"^abc$":          {{form: equals, literal: "abc", prefix: "abc"}},
		"^(?:ab|cd)$":    {{form: equals, literal: "ab", prefix: "ab"}, {form: equals, literal: "cd", prefix: "cd"}},
		"^nvidia|^amd":   {{form: begins, literal: "nvidia", prefix: "nvidia"}, {form: begins, literal: "amd", prefix: "amd"}},
		".*gpu.*":        {{form: contains, literal: "gpu"}},
		"^a[xy]":         {{form: begins, literal: "ax", prefix: "ax"}, {form: begins, literal: "ay", prefix: "ay"}},
		`^10\.0\.`:       {{form: begins, literal: "10.0.", prefix: "10.0."}},
		"":               {{form: contains}},
		"^abc[0-9]+$":    {{form: automaton, literal: "abc", prefix: "abc"}},
		"[0-9]+-generic": {{form: automaton, literal: "-generic"}},
		"(?i)abc":        {{form: automaton}},
	}
	for text, want := range tests {
		got, err := compilePattern(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].re, got[i].perByte = nil, 0
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(pattern{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// underRace is set if the race detector is enabled.
var underRace bool

func TestEvalDoesNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	node := benchFacts(t, "node-0")
	matchers, _ := benchMatchers(t, "rules-100")
	var work Work
	n := testing.AllocsPerRun(100, func() {
		for _, m := range matchers {
			work = 0
			if _, err := m.EvalWithin(&work, node, false); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n > 0 {
		t.Errorf("%v allocations to evaluate %d lists of terms", n, len(matchers))
	}
}

// Each operator must have a constant in the API, and each constant must be an operator.
func TestOperatorsAreThoseOfTheAPI(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", "api", "nfd", "v1alpha1", "matcher.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "MatchOp" {
				name, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				declared[name] = true
			}
		}
		return true
	})
	for i := range operators {
		if op := string(operators[i].op); !declared[op] {
			t.Errorf("api/nfd/v1alpha1/matcher.go has no constant for the operator %q", op)
		}
		delete(declared, string(operators[i].op))
	}
	for op := range declared {
		t.Errorf("the operator %q of api/nfd/v1alpha1/matcher.go is not in the list of operators", op)
	}
}

// TestShowsUpToEightValues checks that an error shows a limited number of values.
func TestShowsUpToEightValues(t *testing.T) {
	for n, want := range map[int]bool{8: false, 9: true} {
		e := &Expr{Op: "Gt", Value: slices.Repeat([]string{"1"}, n)}
		_, errs := Compile(field.NewPath("m"), []Term{{Feature: "a.b", Expressions: map[string]*Expr{"k": e}}}, Options{})
		if len(errs) != 1 || strings.Contains(errs[0].Error(), "…") != want {
			t.Errorf("%d values: %v, shortened: want %t", n, errs, want)
		}
	}
}

// TestTraceNamesTheFirstNameThatCannotBeCompared checks that names are compared in order.
func TestTraceNamesTheFirstNameThatCannotBeCompared(t *testing.T) {
	m := compile(t, []Term{{Feature: "a.b", Name: &Expr{Op: "Gt", Value: []string{"5"}}}}, Options{})
	trace := m.Trace(facts.FromMap(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("first", "second")}}, nil))
	if got := trace[0].Name.Error; !strings.Contains(got, "first") || strings.Contains(got, "second") {
		t.Errorf("the error is %q, want one about the first name", got)
	}
}

// TestWorkMayReachItsBound checks that an evaluation may use exactly the maximum work.
func TestWorkMayReachItsBound(t *testing.T) {
	at, beyond := Work(MaxWork), Work(MaxWork+1)
	if at.exhausted() || !beyond.exhausted() {
		t.Errorf("exhausted at the bound: %t, beyond it: %t", at.exhausted(), beyond.exhausted())
	}
}

// TestWhyIsAboutWhatDoesNotHold checks that the reason names matchName if the expressions hold, and does not mention instances.
func TestWhyIsAboutWhatDoesNotHold(t *testing.T) {
	m := compile(t, []Term{{
		Feature:     "a.b",
		Expressions: map[string]*Expr{"x": {Op: "Exists"}, "y": {Op: "Exists"}},
		Name:        &Expr{Op: "In", Value: []string{"z"}},
	}}, Options{})
	why := m.Why(facts.FromMap(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("x", "y")}}, nil))
	if !strings.Contains(why, "z") || strings.Contains(why, "instances") {
		t.Errorf("the reason is %q, want one about the name z", why)
	}
}
