package condition

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

func parse(t testing.TB, text string) nfdv1alpha1.Condition {
	t.Helper()
	var c nfdv1alpha1.Condition
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEval(t *testing.T) {
	tests := map[string]struct {
		condition string // YAML
		want      bool
		err       string
	}{
		"CamelCase":                  {condition: `{op: IsTrue, args: {value: "{@cpu.x.t}"}}`, want: true},
		"CamelCaseInverted":          {condition: `{op: "!InNet", args: {address: 10.0.0.1, subnet: 10.0.0.0/8}}`, want: false},
		"Invert":                     {condition: `{op: eq, args: {values: [1, 2]}, invert: true}`, want: true},
		"InvertTwice":                {condition: `{op: "!eq", args: {values: [1, 2]}, invert: true}`, want: false},
		"InvertsEachTurn":            {condition: `{op: eq, args: {values: [1, "{item}"]}, loop: [1, 2], multiple: any, invert: true}`, want: true},
		"EmptyLoopAnyIsFalse":        {condition: `{op: is-none, args: {value: "{item}"}, loop: "{@none.dev}"}`, want: false},
		"EmptyLoopAllIsTrueInverted": {condition: `{op: "!is-none", args: {value: "{item}"}, loop: "{@none.dev}", multiple: all}`, want: true},
		"EmptyLoopFirstIsFalse":      {condition: `{op: "!is-none", args: {value: "{item}"}, loop: "{@none.dev}", multiple: first}`, want: false},
		"MissingLoopIsFalse":         {condition: `{op: is-none, args: {value: "{item}"}, loop: "{@no.dev}", multiple: all}`, want: false},
		"MapIsOneTurn":               {condition: `{op: eq, args: {values: ["{item.a}", 1]}, loop: {a: 1}}`, want: true},
		"EmptyLoopLastIsFalse":       {condition: `{op: "!is-none", args: {value: "{item}"}, loop: "{@none.dev}", multiple: last}`, want: false},
		"MissingValuesOfComparison":  {condition: `{op: eq, args: {values: "{@no.flags}"}}`, want: false},
		"OneOfMissingValue":          {condition: `{op: one-of, args: {value: "{@cpu.x.nope}", values: "{@cpu.x.arch}"}}`, want: false},
		"WordsAreOrdered":            {condition: `{op: lt, args: {values: [abc, "{@cpu.x.arch}"]}}`, want: true},
		"LongestDecimal":             {condition: `{op: lt, args: {values: ["9.` + strings.Repeat("0", maxDecimal-2) + `", "10.5"]}}`, want: true},
		"LongerTextIsNoDecimal":      {condition: `{op: lt, args: {values: ["9.` + strings.Repeat("0", maxDecimal-1) + `", "10.5"]}}`, want: false},
		"ExponentIsNoDecimal":        {condition: `{op: gt, args: {values: ["1e3", "5"]}}`, want: false},
		"FractionIsNoDecimal":        {condition: `{op: lt, args: {values: ["3/2", "2"]}}`, want: false},
		"EmptyTextIsNoDecimal":       {condition: `{op: lt, args: {values: ["", "a"]}}`, want: true},
		"IsTrueTextFive":             {condition: `{op: is-true, args: {value: "5"}}`, want: false},
		"IsFalseTextTwoZeros":        {condition: `{op: is-false, args: {value: "00"}}`, want: false},
		"InNetMissingSubnet":         {condition: `{op: in-net, args: {address: 10.0.0.1, subnet: "{@cpu.x.nope}"}}`, want: false},
		"MissingPattern":             {condition: `{op: contains, args: {value: a, regex: "{@cpu.x.nope}"}}`, want: false},
		"LongestRegexp":              {condition: `{op: contains, args: {value: ` + strings.Repeat("a", maxRegex) + `, regex: ` + strings.Repeat("a", maxRegex) + `}}`, want: true},
		"LastTurn":                   {condition: `{op: eq, args: {values: ["{item.name}", eth1]}, loop: "{@net.dev}", multiple: last}`, want: true},
		"ItemsHoldExpressions":       {condition: `{op: eq, args: {values: ["{item}", 4]}, loop: ["{@cpu.x.count}"], multiple: all}`, want: true},
		"ListOfArguments":            {condition: `{op: eq, args: [5, 5]}`, want: true},
		"ListInListOfArguments":      {condition: `{op: eq, args: [[5, 5]]}`, want: true},
		"PositionalOneOf":            {condition: `{op: one-of, args: [a, [a, b]]}`, want: true},
		"PositionalContains":         {condition: `{op: contains, args: ["Dell Inc.", "(?i)dell"]}`, want: true},
		"DiscoveredValues":           {condition: `{op: one-of, args: {value: AVX, values: "{@cpu.flags}"}}`, want: true},
		"MissingValues":              {condition: `{op: one-of, args: {value: AVX, values: "{@no.flags}"}}`, want: false},
		"TextBesideBool":             {condition: `{op: eq, args: {values: ["{@cpu.x.t}", true]}}`, want: true},
		"WordBesideNumberDiffers":    {condition: `{op: eq, args: {values: ["{@cpu.x.arch}", 5]}}`, want: false},
		"ZerosAreNumbers":            {condition: `{op: eq, args: {values: ["007", 7]}}`, want: true},
		"VersionsAreText":            {condition: `{op: eq, args: {values: ["6.1", "6.10"]}}`, want: false},
		"TypeVersion":                {condition: `{op: lt, args: {values: ["6.9", "6.10", "v7"], type: version}}`, want: true},
		"TypeVersionOfDistribution":  {condition: `{op: eq, args: {values: ["5.14.0-362.el9.x86_64", "5.14"], type: version}}`, want: true},
		"NoVersion":                  {condition: `{op: lt, args: {values: ["{@cpu.x.arch}", "1"], type: version}}`, err: `version "x86_64" does not start with a number`},
		"ForceStrings":               {condition: `{op: gt, args: {values: ["{@cpu.x.mem}", "10000"], force_strings: true}}`, want: true},
		"ForceStringsOnNumbers":      {condition: `{op: eq, args: {values: ["007", 7], force_strings: true}}`, want: false},
		"MissingIsNeverLess":         {condition: `{op: lt, args: {values: ["{@cpu.x.nope}", 5]}}`, want: false},
		"MissingIsNeverGreater":      {condition: `{op: gt, args: {values: [5, "{@cpu.x.nope}"]}}`, want: false},
		"NotLessIfMissing":           {condition: `{op: "!lt", args: {values: ["{@cpu.x.nope}", 5]}}`, want: true},
		"WordHasNoOrder":             {condition: `{op: lt, args: {values: ["{@cpu.x.arch}", 5]}}`, err: `a string "x86_64" and a number "5" cannot be ordered`},
		"WordHasNoOrderInverted":     {condition: `{op: "!lt", args: {values: ["{@cpu.x.arch}", 5]}}`, err: `cannot be ordered`},
		"FractionBesideNumber":       {condition: `{op: lt, args: {values: ["1.5", 2]}}`, want: true},
		"DecimalStringsAreOrdered":   {condition: `{op: gt, args: {values: ["10.5", "9.5"]}}`, want: true},
		"DecimalStringsDiffer":       {condition: `{op: eq, args: {values: ["2.1", "2.10"]}}`, want: false},
		"DecimalBesideNumberIsEqual": {condition: `{op: eq, args: {values: ["2.0", 2]}}`, want: true},
		"DecimalIsTrue":              {condition: `{op: is-true, args: {value: 2.5}}`, want: true},
		"DecimalZeroIsFalse":         {condition: `{op: is-false, args: {value: "0.0"}}`, want: true},
		"VersionIsNotTrue":           {condition: `{op: is-true, args: {value: "1.2.3"}}`, want: false},
		"ListsAreComparedByElement":  {condition: `{op: eq, args: {values: ["{@cpu.flags}", [AVX, SSE4]]}}`, want: true},
		"MapsAreComparedByElement":   {condition: `{op: eq, args: {values: ["{@net.dev[0]}", {name: eth0, speed: 1000}]}}`, want: true},
		"IsNone":                     {condition: `{op: is-none, args: {value: "{@cpu.x.nope}"}}`, want: true},
		"IsNoneOfNull":               {condition: `{op: is-none, args: {value: null}}`, want: true},
		"IsEmptyList":                {condition: `{op: is-empty, args: {value: []}}`, want: true},
		"IsEmptyMap":                 {condition: `{op: is-empty, args: {value: {}}}`, want: true},
		"IsEmptyFalse":               {condition: `{op: is-empty, args: {value: false}}`, want: false},
		"IsTrueOne":                  {condition: `{op: is-true, args: {value: "1"}}`, want: true},
		"IsTrueBool":                 {condition: `{op: is-true, args: {value: true}}`, want: true},
		"IsTrueMinusOne":             {condition: `{op: is-true, args: {value: -1}}`, want: true},
		"IsTrueMissing":              {condition: `{op: is-true, args: {value: "{@cpu.x.nope}"}}`, want: false},
		"IsFalseTextZero":            {condition: `{op: is-false, args: {value: "{@cpu.x.zero}"}}`, want: true},
		"IsFalseBool":                {condition: `{op: is-false, args: {value: false}}`, want: true},
		"IsFalseRandom":              {condition: `{op: is-false, args: {value: random}}`, want: false},
		"InNet6":                     {condition: `{op: in-net, args: {address: "fd00::1", subnet: "fd00::/8"}}`, want: true},
		"InNetMapped":                {condition: `{op: in-net, args: {address: "::ffff:10.0.0.1", subnet: 10.0.0.0/8}}`, want: true},
		"InNetHostBits":              {condition: `{op: in-net, args: {address: "{@cpu.x.bmc}", subnet: 192.168.1.7/24}}`, want: true},
		"InNetOfOne":                 {condition: `{op: in-net, args: {address: 10.0.0.1, subnet: 10.0.0.1}}`, want: true},
		"InNetWithZone":              {condition: `{op: in-net, args: {address: "fe80::1%eth0", subnet: "fe80::/10"}}`, want: true},
		"BadSubnetOfNode":            {condition: `{op: in-net, args: {address: 10.0.0.1, subnet: "{@cpu.x.arch}"}}`, err: `netip.ParsePrefix("x86_64")`},
		"MatchesWhole":               {condition: `{op: matches, args: {value: "{@cpu.x.product}", regex: "PowerEdge R[0-9]{3}"}}`, want: true},
		"MatchesNoTrailingLine":      {condition: `{op: matches, args: {value: "a\n", regex: a}}`, want: false},
		"ContainsEmpty":              {condition: `{op: contains, args: {value: a, regex: ""}}`, want: true},
		"RegexOfNode":                {condition: `{op: matches, args: {value: node-1, regex: "{node}"}}`, want: true},
		"RegexOnNumber":              {condition: `{op: matches, args: {value: 42, regex: "[0-9]+"}}`, want: true},
		"RegexOnList":                {condition: `{op: contains, args: {value: "{@cpu.flags}", regex: AVX}}`, err: "a list is not a string: use loop"},
		"LargeLoop":                  {condition: `{op: is-none, args: {value: "{item}"}, loop: "{@large.dev}"}`, err: "loop over 300 items exceeds the budget of 256"},
		"LoopOverText":               {condition: `{op: is-none, args: {value: "{item}"}, loop: "{@cpu.x.arch}"}`, err: "loop: a string is not a list"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, ac := compile(t, parse(t, tc.condition))
			if c == nil {
				t.Fatal(ac.Errors.ToAggregate())
			}
			got, err := c.Eval(newMachine())
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if trace := c.Trace(newMachine()); trace.OK != got {
				t.Errorf("Trace says %+v", trace)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		condition string
		want      []string // fields, and prefixes of messages
	}{
		"EmptyOp":           {`{op: "", args: {value: 1}}`, []string{"conditions[0].op: empty op: quote it"}},
		"BangAlone":         {`{op: "!", args: {value: 1}}`, []string{"conditions[0].op: empty op: quote it"}},
		"OpOfElsewhere":     {`{op: equals, args: {values: [1, 2]}}`, []string{"conditions[0].op: unknown operator: write eq"}},
		"InvertedElsewhere": {`{op: "!=", args: {values: [1, 2]}}`, []string{"conditions[0].op: unknown operator: write !eq"}},
		"InvertedTwice":     {`{op: "!>=", args: {values: [1, 2]}}`, []string{"conditions[0].op: unknown operator: write lt"}},
		"TwoBangs":          {`{op: "!!eq", args: {values: [1, 2]}}`, []string{"conditions[0].op: unknown operator: one of"}},
		"ForeignOperator":   {`{op: ge, args: {values: [1, 2]}}`, []string{"conditions[0].op: unknown operator: write !lt"}},
		"UnknownArgument":   {`{op: is-true, args: {value: 1, x: 2}}`, []string{"conditions[0].args.x: is-true has no such argument: value"}},
		"MissingArgument":   {`{op: in-net, args: {address: 10.0.0.1}}`, []string{"conditions[0].args.subnet: in-net needs it"}},
		"NoArguments":       {`{op: is-true}`, []string{"conditions[0].args.value: is-true needs it"}},
		"TooManyPositional": {`{op: is-true, args: [1, 2]}`, []string{"conditions[0].args: is-true takes no more than 1 arguments"}},
		"BadRegexp":         {`{op: contains, args: {value: a, regex: "[bad"}}`, []string{"conditions[0].args.regex: error parsing regexp"}},
		"LongRegexp":        {`{op: contains, args: {value: a, regex: ` + strings.Repeat("a", maxRegex+1) + `}}`, []string{"conditions[0].args.regex: regular expression longer than 1024 bytes"}},
		"BadVersions":       {`{op: lt, args: {values: ["1", a, "2", b], type: version}}`, []string{`conditions[0].args.values: version "a"`}},
		"BadSubnet":         {`{op: in-net, args: {address: 10.0.0.1, subnet: bad}}`, []string{`conditions[0].args.subnet: netip.ParsePrefix("bad")`}},
		"BadVersion":        {`{op: lt, args: {values: [a, "{node}"], type: version}}`, []string{`conditions[0].args.values: version "a"`}},
		"BadType":           {`{op: lt, args: {values: [1, 2], type: float}}`, []string{"conditions[0].args.type: supported values"}},
		"BadMultiple":       {`{op: is-true, args: {value: 1}, loop: [1], multiple: some}`, []string{"conditions[0].multiple: supported values"}},
		"EmptyLoop":         {`{op: is-true, args: {value: 1}, loop: []}`, []string{"conditions[0].loop: an empty loop has no effect"}},
		"OneValue":          {`{op: eq, args: {values: [5]}}`, []string{"conditions[0].args.values: values must be a list of at least two"}},
		"TextAsValues":      {`{op: one-of, args: {value: a, values: abc}}`, []string{"conditions[0].args.values: values must be a list"}},
		"UnknownName":       {`{op: eq, args: {values: ["{rakc}", 1]}}`, []string{"conditions[0].args.values[0]: column 2: unknown name rakc"}},
		"ItemOutsideOfLoop": {`{op: eq, args: {values: ["{item}", 1]}}`, []string{"conditions[0].args.values[0]: column 2: item exists only in a loop"}},
		"AllAtOnce": {`{op: contains, args: {value: "{rakc}", regex: "[bad", x: 1}, loop: [], multiple: some}`,
			[]string{"conditions[0].loop:", "conditions[0].multiple:", "conditions[0].args.x:", "conditions[0].args.value:"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, ac := compile(t, parse(t, tc.condition))
			if c != nil {
				t.Fatal("it was accepted")
			}
			for i, want := range tc.want {
				if i >= len(ac.Errors) {
					t.Fatalf("no error %s", want)
				}
				e := ac.Errors[i]
				body := e.ErrorBody()
				field, message, _ := strings.Cut(want, ": ")
				if e.Field != strings.TrimSuffix(field, ":") || !strings.Contains(body, message) {
					t.Errorf("got  %s: %s\nwant %s", e.Field, body, want)
				}
			}
			if len(ac.Errors) != len(tc.want) {
				t.Errorf("%d errors, want %d: %v", len(ac.Errors), len(tc.want), ac.Errors.ToAggregate())
			}
		})
	}
}

func TestLoopsDoNotNest(t *testing.T) {
	c := &args.Compiler{Scope: &expr.Scope{Item: true}}
	if Compile(c, nil, parse(t, `{op: is-true, args: {value: "{item}"}, loop: [1]}`)) != nil || len(c.Errors) == 0 {
		t.Error("it was accepted")
	}
	c = &args.Compiler{Scope: &expr.Scope{Item: true}}
	if Compile(c, nil, parse(t, `{op: is-true, args: {value: "{item}"}}`)) == nil {
		t.Error(c.Errors)
	}
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct{ condition, want string }{
		"ListOfArguments":      {`{op: eq, args: [1, 2]}`, "name the arguments of eq: values, force_strings (optional), type (optional)"},
		"MultipleWithoutLoop":  {`{op: is-true, args: {value: 1}, multiple: all}`, "multiple has no effect without a loop"},
		"ReferenceWithoutHook": {`{op: is-true, args: {value: "@cpu.x.t"}}`, `@cpu.x.t is text here: write "{@cpu.x.t}" for its value`},
		"Fraction":             {`{op: eq, args: {values: [1.5, 2]}}`, "YAML drops trailing zeros of decimals, so 2.10 becomes 2.1: quote 1.5, and compare versions with type: version"},
		"Bang":                 {`{op: "!eq", args: {values: [1, 2]}}`, ""},
		"Invert":               {`{op: eq, args: {values: [1, 2]}, invert: true}`, ""},
		"InvertTwice":          {`{op: "!eq", args: {values: [1, 2]}, invert: true}`, "the ! before the operator and invert cancel each other"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, ac := compile(t, parse(t, tc.condition))
			var got []string
			for _, w := range ac.Warnings {
				got = append(got, w.Message)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTraceShowsResolvedArguments(t *testing.T) {
	c, ac := compile(t, parse(t, `{op: gt, args: {values: ["{item.speed}", 5000]}, loop: "{@net.dev}", multiple: any}`))
	if c == nil {
		t.Fatal(ac.Errors)
	}
	got, err := json.Marshal(c.Trace(newMachine()))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"op":"gt","multiple":"any","turns":[` +
		`{"item":{"name":"eth0","speed":"1000"},"args":[{"name":"values","value":["1000",5000]}],"ok":false},` +
		`{"item":{"name":"eth1","speed":"25000"},"args":[{"name":"values","value":["25000",5000]}],"ok":true}],"ok":true}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestTraceShowsTheArgumentsAfterAnOmittedOne(t *testing.T) {
	c, ac := compile(t, parse(t, `{op: lt, args: {values: ["6.9", "6.10"], type: version}}`))
	if c == nil {
		t.Fatal(ac.Errors)
	}
	var names []string
	for _, arg := range c.Trace(newMachine()).Turns[0].Args {
		names = append(names, arg.Name)
	}
	if diff := cmp.Diff([]string{"values", "type"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestEveryOperatorIsDescribed(t *testing.T) {
	for _, d := range Operators() {
		if d.Says == "" || len(d.Args) == 0 {
			t.Errorf("%s: %+v", d.Name, d)
		}
	}
}

func FuzzEval(f *testing.F) {
	for _, args := range []string{`{"values":["{@cpu.x.count}",4]}`, `{"value":"a","regex":"(a|b)*"}`, `{"address":"::1","subnet":"::/0"}`, `[1,2]`, `{"value":null}`} {
		f.Add("eq", args, `[1,"{node}"]`, "all")
		f.Add("!matches", args, `"{@net.dev}"`, "")
	}
	f.Fuzz(func(t *testing.T, op, arguments, loop, multiple string) {
		in := nfdv1alpha1.Condition{Op: op, Multiple: multiple}
		if !json.Valid([]byte(arguments)) || !json.Valid([]byte(loop)) {
			return
		}
		in.Args.Raw = []byte(arguments)
		in.Loop = &nfdv1alpha1.JSON{Raw: []byte(loop)}
		c, ac := compile(t, in)
		if (c == nil) != (len(ac.Errors) > 0) {
			t.Fatalf("compiled %v with %v", c, ac.Errors)
		}
		if c == nil {
			return
		}
		ok, err := c.Eval(newMachine())
		if err != nil && ok {
			t.Errorf("holds in spite of %v", err)
		}
		if again, _ := c.Eval(newMachine()); again != ok {
			t.Error("second evaluation differs")
		}
		if trace := c.Trace(newMachine()); trace.OK != ok && err == nil {
			t.Errorf("Trace says %+v", trace)
		}
	})
}

func BenchmarkEval(b *testing.B) {
	for name, text := range map[string]string{
		"Equal":   `{op: eq, args: {values: ["{@cpu.x.arch}", x86_64]}}`,
		"Greater": `{op: gt, args: {values: ["{@cpu.x.mem}", 4096]}}`,
		"OneOf":   `{op: one-of, args: {value: "{@cpu.x.arch}", values: [x86_64, aarch64]}}`,
		"Matches": `{op: matches, args: {value: "{node}", regex: "n[a-z]+-[0-9]"}}`,
		"Loop":    `{op: gt, args: {values: ["{item.speed}", 5000]}, loop: "{@net.dev}"}`,
	} {
		b.Run(name, func(b *testing.B) {
			c := &args.Compiler{}
			condition := Compile(c, nil, parse(b, text))
			if condition == nil {
				b.Fatal(c.Errors)
			}
			m := newMachine()
			b.ReportAllocs()
			for b.Loop() {
				m.left = 1000
				if _, err := condition.Eval(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
