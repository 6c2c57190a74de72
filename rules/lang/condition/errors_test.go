package condition

import (
	"errors"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// TestAnErrorIsNeverTrue evaluates conditions that fail on this machine: the result is false with and without invert.
func TestAnErrorIsNeverTrue(t *testing.T) {
	for name, tc := range map[string]struct{ condition, err string }{
		"TooFewValues":       {`{op: eq, args: {values: "{@one.flags}"}}`, "at least two"},
		"ValuesOfNoList":     {`{op: eq, args: {values: "{@cpu.x.arch}"}}`, "list"},
		"NoList":             {`{op: one-of, args: {value: a, values: "{@cpu.x.arch}"}}`, "list"},
		"FirstVersion":       {`{op: lt, args: {values: ["{@cpu.x.arch}", "1"], type: version}}`, "does not start with a number"},
		"SecondVersion":      {`{op: lt, args: {values: ["1", "{@cpu.x.arch}"], type: version}}`, "does not start with a number"},
		"VersionOfAList":     {`{op: eq, args: {values: ["1", "{@cpu.flags}"], type: version}}`, "is not a version"},
		"OrderOfWords":       {`{op: lt, args: {values: ["{@cpu.x.arch}", 5]}}`, "cannot be ordered"},
		"ComputedPattern":    {`{op: matches, args: {value: a, regex: "[{@cpu.x.arch}"}}`, "missing closing ]"},
		"PatternOnAList":     {`{op: contains, args: {value: "{@cpu.flags}", regex: AVX}}`, "is not a string: use loop"},
		"ComputedSubnet":     {`{op: in-net, args: {address: 10.0.0.1, subnet: "{@cpu.x.arch}"}}`, "no '/'"},
		"SecondOfThree":      {`{op: eq, args: {values: [1, "{1/@cpu.x.zero}", 5]}}`, "division by zero"},
		"ValueOfTheFirst":    {`{op: eq, args: {values: ["{1/@cpu.x.zero}", 5]}}`, "division by zero"},
		"ValueOfOneOf":       {`{op: one-of, args: {value: "{1/@cpu.x.zero}", values: [a]}}`, "division by zero"},
		"CandidateThatFails": {`{op: one-of, args: {value: a, values: ["{1/@cpu.x.zero}"]}}`, "division by zero"},
		"AddressOfAList":     {`{op: in-net, args: {address: "{@cpu.flags}", subnet: 10.0.0.0/8}}`, "a list is not an address"},
		"NoAddress":          {`{op: in-net, args: {address: "{@cpu.x.arch}", subnet: 10.0.0.0/8}}`, "ParseAddr"},
		"AddressThatFails":   {`{op: in-net, args: {address: "{1/@cpu.x.zero}", subnet: 10.0.0.0/8}}`, "division by zero"},
		"SubnetThatFails":    {`{op: in-net, args: {address: 10.0.0.1, subnet: "{1/@cpu.x.zero}"}}`, "division by zero"},
		"PatternThatFails":   {`{op: matches, args: {value: a, regex: "{1/@cpu.x.zero}"}}`, "division by zero"},
		"ValueOfAPattern":    {`{op: matches, args: {value: "{1/@cpu.x.zero}", regex: a}}`, "division by zero"},
		"NumberBeforeWord":   {`{op: lt, args: {values: [5, "{@cpu.x.arch}"]}}`, "cannot be ordered"},
	} {
		for _, invert := range []string{"", ", invert: true}"} {
			text := tc.condition
			if invert != "" {
				text = strings.TrimSuffix(text, "}") + invert
			}
			c, ac := compile(t, parse(t, text))
			if c == nil {
				t.Fatalf("%s is not compiled: %v", name, ac.Errors.ToAggregate())
			}
			m := newMachine()
			m.features["one.flags"] = expr.OfList(expr.Names{"AVX"})
			ok, err := c.Eval(m)
			if err == nil || !strings.Contains(err.Error(), tc.err) || ok {
				t.Errorf("%s%s: %t, %v; want false, and the error %q", name, invert, ok, err, tc.err)
			}
			if ok, _ := c.operator.eval(c, m); ok {
				t.Errorf("%s%s: the operator itself is true", name, invert)
			}
		}
	}
}

// TestABudgetEndsConditions evaluates conditions with each budget up to the one that they need: less is an error, and never true.
func TestABudgetEndsConditions(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for name, text := range map[string]string{
		"Compare":  `{op: eq, args: {values: "{@same.flags}"}}`,
		"OneOf":    `{op: one-of, args: {value: a, values: "{@same.flags}"}}`,
		"Contains": `{op: contains, args: {value: ` + long + `, regex: a}}`,
		"Matches":  `{op: matches, args: {value: ` + long + `, regex: "a+"}}`,
		"Loop":     `{op: eq, args: {values: ["{item}", a]}, loop: "{@same.flags}", multiple: all}`,
	} {
		c, ac := compile(t, parse(t, text))
		if c == nil {
			t.Fatal(name, ac.Errors.ToAggregate())
		}
		needed := -1
		for steps := range 1000 {
			m := newMachine()
			m.left = steps
			m.features["same.flags"] = expr.OfList(expr.Names{"a", "a", "a", "a"})
			ok, err := c.Eval(m)
			if err == nil {
				if !ok {
					t.Errorf("%s is false", name)
				}
				needed = steps
				break
			}
			if !errors.Is(err, expr.ErrBudget) || ok {
				t.Errorf("%s with %d steps: %t, %v", name, steps, ok, err)
			}
			m.left = steps
			if ok, err := c.operator.eval(c, &args.Turn{Env: m, Value: expr.OfText("a")}); ok && err != nil {
				t.Errorf("%s with %d steps: the operator itself is true", name, steps)
			}
		}
		if needed < 2 {
			t.Errorf("%s needs %d steps: it costs nothing", name, needed)
		}
	}
}

// TestListsAndMapsAreEqualByElement compares values that differ in one place.
func TestListsAndMapsAreEqualByElement(t *testing.T) {
	list := func(values ...expr.Value) expr.Value { return expr.OfList(expr.Values(values)) }
	text, number := expr.OfText, expr.OfInt
	for name, tc := range map[string]struct {
		a, b expr.Value
		want bool
	}{
		"EmptyLists":       {list(), list(), true},
		"Lists":            {list(text("a"), number(2)), list(text("a"), text("2")), true},
		"LongerList":       {list(text("a"), text("b")), list(text("a")), false},
		"ShorterList":      {list(text("a")), list(text("a"), text("b")), false},
		"OtherFirst":       {list(text("x"), text("b")), list(text("a"), text("b")), false},
		"OtherLast":        {list(text("a"), text("x")), list(text("a"), text("b")), false},
		"Maps":             {expr.OfMap(expr.Texts{"a": "1", "b": "2"}), expr.OfMap(expr.Texts{"a": "1", "b": "2"}), true},
		"LargerMap":        {expr.OfMap(expr.Texts{"a": "1", "b": "2"}), expr.OfMap(expr.Texts{"a": "1"}), false},
		"OtherValue":       {expr.OfMap(expr.Texts{"a": "1"}), expr.OfMap(expr.Texts{"a": "2"}), false},
		"OtherKey":         {expr.OfMap(expr.Texts{"a": "1"}), expr.OfMap(expr.Texts{"b": "1"}), false},
		"ListAndMap":       {list(), expr.OfMap(expr.Texts{}), false},
		"ListAndText":      {list(text("a")), text("a"), false},
		"ListAndEmptyText": {list(), text(""), false},
		"EmptyTextAndMap":  {text(""), expr.OfMap(expr.Texts{}), false},
		"WholeAndDecimal":  {text("2"), text("2.0"), false},
		"Missing":          {expr.Value{}, expr.Value{}, false},
		"MissingAndText":   {expr.Value{}, text(""), false},
		"TextAndMissing":   {text(""), expr.Value{}, false},
		"BoolAndText":      {expr.OfBool(true), text("TRUE"), true},
		"TextAndBool":      {text("False"), expr.OfBool(false), true},
		"TextsAreExact":    {text("TRUE"), text("true"), false},
		"NumberAndDecimal": {number(2), text("2.0"), true},
		"DecimalsAreTexts": {text("2.0"), text("2.00"), false},
		"WholeTexts":       {text("02"), text("2"), true},
	} {
		if got := same(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
