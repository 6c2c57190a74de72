package expr

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// edgeMachine is newMachine with values at the limits.
func edgeMachine() *machine {
	m := newMachine("r3u14")
	m.features["long.text"] = OfMap(Texts{
		"max": strings.Repeat("x", maxValue), "result": strings.Repeat("x", MaxResult), "label": strings.Repeat("x", maxLabel),
		"parts": strings.Repeat("x", MaxItems-1), "more": strings.Repeat("x", MaxItems), "wide": strings.Repeat("x", MaxResult+1),
	})
	m.vars["m"] = OfMap(Dict{"a": OfText("x")})
	m.vars["big"] = OfList(Names{strings.Repeat("x", maxValue)})
	m.vars["bigger"] = OfList(Names{strings.Repeat("x", maxValue), ""})
	return m
}

// outcome returns what an author sees of a string: its value as JSON, or the first problem or error.
func outcome(text string, place Place, m *machine) string {
	s := m.scope()
	s.Item, s.Matched = true, true
	compiled, problems := Compile(text, place, Auto, s)
	if compiled == nil {
		return "refused: " + problems[0].Error()
	}
	v, err := compiled.Eval(m)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(v.appendJSON(nil))
}

func TestArithmeticAtTheLimits(t *testing.T) {
	const overflowed = "the result does not fit into 64 bits"
	for text, want := range map[string]string{
		`{n1-0}`:                        `3`,
		`{n1/-1}`:                       `-3`,
		`{n1<<0}`:                       `3`,
		`{n1/3+(-n1)/3}`:                `0`,
		`{("42").num(0)+n1*0}`:          `42`,
		`{9223372036854775807*1}`:       `9223372036854775807`,
		`{(-9223372036854775807-1)*1}`:  `-9223372036854775808`,
		`{(-9223372036854775807-1)/2}`:  `-4611686018427387904`,
		`{(-9223372036854775807-1)/-1}`: `refused: column 26: ` + overflowed,
		`{4611686018427387904*2}`:       `refused: column 21: ` + overflowed,
		`{9223372036854775806+1+1}`:     `refused: column 23: ` + overflowed,
		`{n1.block_number(1)}`:          `3`,
		`{n1.block_offset(1)}`:          `1`,
		`{node.hash(1)}`:                `0`,
		`{n1.block_number(rack-3)}`:     `error: column 5: block_number needs a number above zero`,
		`{n1.block_number(u)}`:          `error: column 5: block_number needs a number above zero`,
		`{node.hash(rack-3)}`:           `error: column 7: hash needs a number above zero`,
		`{node.hash(u)}`:                `error: column 7: hash needs a number above zero`,
		`{("abc").int()}`:               `refused: column 10: "abc" is not a number`,
		`{("ab")[9].default("x")}`:      `"x"`,
		`{("ab").default("x").upper()}`: `"AB"`,
		`{("a-b").split("-")[0]}`:       `"a"`,
		`{("a-b").split("-").len()}`:    `2`,
	} {
		if got := outcome(text, Arg, edgeMachine()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestFunctionsAtTheLimits(t *testing.T) {
	for text, want := range map[string]string{
		`{@long.text.max.upper().len()}`:                            `16384`,
		`{@long.text.max.replace("x", "y").len()}`:                  `16384`,
		`{@long.text.max.split("y").len()}`:                         `1`,
		`{@long.text.parts.split("x").len()}`:                       `256`,
		`{@long.text.more.split("x").len()}`:                        `error: column 18: split makes more than 256 parts`,
		`{big.join(",").len()}`:                                     `16384`,
		`{bigger.join(",").len()}`:                                  `error: column 9: join makes a string longer than 16384 bytes`,
		`{@long.text.result.len()}`:                                 `1024`,
		`{@long.text.result}`:                                       `"` + strings.Repeat("x", MaxResult) + `"`,
		`{@long.text.result}{node[3:1]}`:                            `"` + strings.Repeat("x", MaxResult) + `"`,
		`{@long.text.wide}`:                                         `error: column 2: the result is longer than 1024 bytes`,
		`{@long.text.wide}{node[3:1]}`:                              `error: column 2: the result is longer than 1024 bytes`,
		`{@long.text.label.label()}`:                                `"` + strings.Repeat("x", maxLabel) + `"`,
		`{("(a) b").label()}`:                                       `"a-b"`,
		`{("a.b-c_d").label()}`:                                     `"a.b-c_d"`,
		`{node.split(gpus).len()}`:                                  `error: column 7: split needs text, as in host.split("-")`,
		`{node.replace("r", gpus)}`:                                 `error: column 7: replace needs text, as in node.replace("a", "b")`,
		`{node.replace(gpus, "r")}`:                                 `error: column 7: replace needs text, as in node.replace("a", "b")`,
		`{("` + strings.Repeat("x", 300) + `").upper().len()+n1*0}`: `300`,
	} {
		if got := outcome(text, Arg, edgeMachine()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestFunctionsTakeStepsForTheirBytes gives a function on 16 KiB fewer steps than it needs.
func TestFunctionsTakeStepsForTheirBytes(t *testing.T) {
	m := edgeMachine()
	m.left = maxValue/bytesPerStep - 1
	text, problems := Compile(`{@long.text.max.upper().len()}`, Arg, Auto, m.scope())
	if text == nil {
		t.Fatal(problems)
	}
	if v, err := text.Eval(m); !errors.Is(err, ErrBudget) {
		t.Errorf("got %v, %v, want %v", v, err, ErrBudget)
	}
}

func TestFormatsAtTheLimits(t *testing.T) {
	for text, want := range map[string]string{
		"{n1: >4}":          `"   3"`,
		"{n1*0:+}":          `"+0"`,
		"{n1*0:d}":          `"0"`,
		"{n2*1000000:010,}": `"14,000,000"`,
		"{serial:,}":        `"123"`,
		"{serial:=5}":       `"  123"`,
		"{node:.0}|":        `"|"`,
		"{node:.2s}":        `"r3"`,
		"{5:d}":             `"5"`,
		"{n1:*>+063,d}":     `"` + strings.Repeat("*", 61) + `+3"`,
		"{n1:*>+#063,d}":    `refused: column 14: bad format specification *>+#063,d (such as 02d, x, >8 or ,)`,
		`{("x"):d}`:         `refused: column 3: "x" is not a number`,
		"{n1:.0}":           `refused: column 2: a number has no precision`,
		"{rack:.0d}":        `refused: column 10: bad format specification .0d (such as 02d, x, >8 or ,)`,
		"{rack:.2x}":        `refused: column 10: bad format specification .2x (such as 02d, x, >8 or ,)`,
		"{rack:+.2}":        `refused: column 10: bad format specification +.2 (such as 02d, x, >8 or ,)`,
		"{node:+s}":         `refused: column 9: bad format specification +s (such as 02d, x, >8 or ,)`,
		"{node:=s}":         `refused: column 9: bad format specification =s (such as 02d, x, >8 or ,)`,
	} {
		if got := outcome(text, Arg, edgeMachine()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestProblemsAreExact compares whole messages, with their hints.
func TestProblemsAreExact(t *testing.T) {
	for text, want := range map[string]string{
		`{gpus.vendor}`:      `error: column 7: a list has no element vendor: choose an element of the list first, [0]`,
		`{m.a.b}`:            `error: column 6: a string has no element b`,
		`{gpus[rakc+1]}`:     `refused: column 7: unknown name rakc (did you mean rack?)`,
		`{uper(node)}`:       `refused: column 2: unknown name uper`,
		`{upper}`:            `refused: column 2: unknown name upper`,
		`{cpu}`:              `refused: column 2: unknown name cpu`,
		`{foo.bar}`:          `refused: column 2: unknown name foo.bar`,
		`{a1}`:               `refused: column 2: unknown name a1`,
		`{zone}`:             `refused: column 2: unknown name zone (did you mean node?)`,
		`{Zone}`:             `refused: column 2: unknown name Zone (did you mean node?)`,
		`{@kernel(1)}`:       `refused: column 2: @kernel names no feature (@DOMAIN.FEATURE or @DOMAIN.FEATURE.ELEMENT)`,
		`{@kernel.version.`:  `refused: column 17: unexpected .`,
		`{@kernel.version.}`: `refused: column 17: unexpected .`,
		`{node.`:             `refused: column 6: unexpected .`,
		`{n1+`:               `refused: column 5: missing }`,
		`{(n1`:               `refused: column 5: missing )`,
		`{n1 foo}`:           `refused: column 5: unexpected foo`,
		`{n1 ]}`:             `refused: column 5: unexpected ]`,
		`{node.labels+1}`:    `refused: column 2: a map is not a number`,
		`{node.labels}x`:     `refused: column 1: a map is not a string (choose an element, or write .join(","))`,
		`{` + strings.Repeat("-", maxDepth) + `n1}`: `refused: column 66: nested deeper than 64`,
	} {
		if got := outcome(text, Arg, edgeMachine()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestEveryProblemIsReportedOnce compares the columns of all problems of a string.
func TestEveryProblemIsReportedOnce(t *testing.T) {
	columns := func(first, step, n int) []int {
		list := make([]int, n)
		for i := range list {
			list[i] = first + i*step
		}
		return list
	}
	for text, tc := range map[string]struct {
		place Place
		want  []int
	}{
		`{rakc}{n1}{unitt}`:                     {Strict, []int{2, 12}},
		`{rakc+1:.2}{unitt}`:                    {Strict, []int{2, 13}},
		`{node.uper()}{unitt}`:                  {Strict, []int{7}},
		`a{node.uper()}b{node.uper()}`:          {Free, []int{8, 22}},
		strings.Repeat("{rakc}", maxProblems+8): {Strict, columns(2, 6, maxProblems)},
		strings.Repeat("{rakc}", maxProblems+7): {Free, columns(2, 6, maxWarnings)},
		strings.Repeat("{node.uper()}", 40):     {Free, columns(7, 13, maxProblems)},
	} {
		_, problems := Compile(text, tc.place, Auto, newMachine("r3u14").scope())
		var got []int
		for _, p := range problems {
			got = append(got, p.Column)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestLiteralTextAtTheEdges(t *testing.T) {
	long := strings.Repeat("x", MaxText)
	for _, tc := range []struct {
		text  string
		place Place
		want  string
	}{
		{`{{n1}} {{x}}`, Free, `"{n1} {x}"`},
		{`${node}/{n1}`, Free, `"${node}/3"`},
		{`\p{host}`, Regex, `"\\p{host}"`},
		{`\d{host}`, Regex, `"\\dr3u14"`},
		{`xp{host}`, Regex, `"xpr3u14"`},
		{`{node.`, Free, `"{node."`},
		{"{" + long, Free, `"{` + long + `"`},
		{"{{" + long, Strict, "refused: column 1: text of 4098 bytes is longer than 4096"},
		{"{{" + long, Arg, "refused: column 1: text of 4098 bytes is longer than 4096"},
		{"{{" + long[2:], Strict, `"{` + long[2:] + `"`},
		{"{n1" + strings.Repeat(" ", MaxText-4) + "}", Free, "3"},
		{"{n1" + strings.Repeat(" ", MaxText-3) + "}", Free, "refused: column 1: text of 4097 bytes is longer than 4096"},
		{strings.Repeat("x", MaxResult) + "{node[3:1]}", Strict, `"` + strings.Repeat("x", MaxResult) + `"`},
		{strings.Repeat("{n1}", MaxExpressions), Strict, `"` + strings.Repeat("3", MaxExpressions) + `"`},
		{"{" + strings.Repeat("(", maxDepth-1) + "n1" + strings.Repeat(")", maxDepth-1) + "}", Strict, "3"},
		{"{" + strings.Repeat("-", maxDepth-1) + "n1}", Strict, "-3"},
		{"{-" + strings.Repeat("1+", MaxNodes/2-1) + "n1}", Strict, "32"},
	} {
		if got := outcome(tc.text, tc.place, edgeMachine()); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", tc.text, got, tc.want)
		}
	}
}

func TestTextSaysWhetherItReadsTheNode(t *testing.T) {
	for text, want := range map[string]bool{
		"{node}": true, "{nodename}": true, "{host}": true, "{n1}": true, `{node.labels["a"]}`: true, `{node.annotations["a"]}`: true,
		`{rack.default("x").replace("3", node)}`: true,
		"{rack}":                                 false, "{@kernel.version.major}": false, "a{{b}}": false,
	} {
		compiled, problems := Compile(text, Strict, Auto, newMachine("r3u14").scope())
		if compiled == nil {
			t.Fatal(text, problems)
		}
		if compiled.ReadsNode() != want || compiled.ReadsMatched() || compiled.IsLiteral() != (text == "a{{b}}") {
			t.Errorf("%s: node %t, matched %t, literal %t", text, compiled.ReadsNode(), compiled.ReadsMatched(), compiled.IsLiteral())
		}
	}
}

func TestFromJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		in   any
		want Value
	}{
		"Null": {nil, Value{}}, "True": {true, OfBool(true)}, "Text": {"5", OfText("5")},
		"Integer": {json.Number("5"), OfInt(5)}, "Decimal": {json.Number("2.10"), OfText("2.10")},
		"Int64": {int64(-5), OfInt(-5)}, "Int": {5, OfInt(5)}, "WholeFloat": {5.0, OfInt(5)}, "Float": {2.5, OfText("2.5")},
		"LargestExactFloat": {float64(1<<53 - 1), OfInt(1<<53 - 1)}, "InexactFloat": {float64(1 << 53), OfText("9007199254740992")},
		"LargestFloat": {math.MaxInt64 * 4.0, OfText("36893488147419103000")},
		"List":         {[]any{nil, "a"}, OfList(Values{{}, OfText("a")})},
		"Map":          {map[string]any{"a": []any{1}}, OfMap(Dict{"a": OfList(Values{OfInt(1)})})},
	} {
		got, err := FromJSON(tc.in)
		if err != nil || got.Kind() != tc.want.Kind() || string(got.appendJSON(nil)) != string(tc.want.appendJSON(nil)) {
			t.Errorf("%s: got %s %s, %v", name, got.Kind(), got.appendJSON(nil), err)
		}
	}
	for name, in := range map[string]any{"Alone": 'x', "InList": []any{'x'}, "InMap": map[string]any{"a": 'x'}} {
		if _, err := FromJSON(in); err == nil || err.Error() != "int32 is not JSON" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyTrueIsTrue(t *testing.T) {
	for _, v := range []Value{OfBool(false), OfInt(1), OfText("true"), {}} {
		if v.Truth() {
			t.Errorf("%s %s is true", v.Kind(), v.appendJSON(nil))
		}
	}
	if !OfBool(true).Truth() {
		t.Error("true is false")
	}
}

func TestTextsAsNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5", "-5": "-5", "+5": "5", " 07 ": "7", "9223372036854775807": "9223372036854775807",
		"": "", " ": "", "-": "", "+-5": "", "5x": "", "x5": "", "1.5": "", "0x5": "", "9223372036854775808": "",
	} {
		n, ok := OfText(text).Number()
		if ok != (want != "") || ok && OfInt(n).String() != want {
			t.Errorf("%q is %d, %t, want %q", text, n, ok, want)
		}
	}
}

// TestSum adds an element of instances: of all, or not at all.
func TestSum(t *testing.T) {
	m := edgeMachine()
	of := func(values ...Value) Value {
		list := Values{}
		for _, v := range values {
			list = append(list, OfMap(Dict{"memory": v}))
		}
		return OfList(list)
	}
	m.features["gpu.ok"] = of(OfText("40"), OfText("-2"), OfInt(4))
	m.features["gpu.none"] = OfList(Values{})
	m.features["gpu.lacks"] = OfList(Values{OfMap(Dict{"memory": OfInt(1)}), OfMap(Dict{"other": OfInt(1)})})
	m.features["gpu.text"] = of(OfText("80Gi"))
	m.features["gpu.huge"] = of(OfInt(math.MaxInt64), OfInt(1))
	m.features["gpu.halves"] = of(OfText("0.5"), OfText("0.5"))
	m.features["gpu.parts"] = of(OfText("1.25"), OfText("-3.5"), OfText("0.000000001"), OfInt(1))
	m.features["gpu.signs"] = of(OfText("-0.5"), OfText("+2.75"), OfText("-2.5"))
	m.features["gpu.point"] = of(OfText(".5"))
	m.features["gpu.digits"] = of(OfText("0.0000000001"))
	m.features["gpu.hidden"] = of(OfMasked())
	for text, want := range map[string]string{
		`{@gpu.ok.sum("memory")}`:               `42`,
		`{@gpu.ok.sum("memory")/2}`:             `21`,
		`{@gpu.ok.len()}`:                       `3`,
		`{@gpu.none.sum("memory")}`:             `0`,
		`{@gpu.lacks.sum("memory")}`:            `error: column 13: instance 1 has no memory`,
		`{@gpu.lacks.sum("memory").default(0)}`: `0`,
		`{@gpu.text.sum("memory")}`:             `error: column 12: "80Gi" is not a number`,
		`{@gpu.huge.sum("memory")}`:             `error: column 12: the result does not fit into 64 bits`,
		`{@gpu.halves.sum("memory")}`:           `1`,
		`{@gpu.halves.sum("memory")*3}`:         `3`,
		`{@gpu.parts.sum("memory")}`:            `"-1.249999999"`,
		`{@gpu.parts.sum("memory")+1}`:          `error: column 13: "-1.249999999" is not a number`,
		`{@gpu.signs.sum("memory")}`:            `"-0.25"`,
		`{@gpu.point.sum("memory")}`:            `error: column 13: ".5" is not a number`,
		`{@gpu.digits.sum("memory")}`:           `error: column 14: "0.0000000001" is not a number`,
		`{@gpu.hidden.sum("memory")}`:           `error: column 14: the value is masked`,
		`{big.sum("memory")}`:                   `error: column 6: sum needs a list of instances, not of a string`,
		`{node.sum("memory")}`:                  `error: column 7: sum needs a list of instances`,
		`{node.labels.sum("memory")}`:           `error: column 14: sum needs a list of instances`,
		`{@gpu.ok.sum(1)}`:                      `refused: column 10: sum needs text, in quotes (as in @dra.device.sum("capacity.memory"))`,
	} {
		if got := outcome(text, Strict, m); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
