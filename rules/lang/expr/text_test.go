package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaces(t *testing.T) {
	tests := map[string]struct {
		text    string
		place   Place
		mode    Mode
		want    string
		problem string // the first problem; the text is rejected unless warned is set
		warned  bool
	}{
		"JSONStays":                     {text: `{"a":{"b":1}}`, place: Free, want: `{"a":{"b":1}}`},
		"JSONAroundExpressionStays":     {text: `{"x":{"y":"{node}"}}`, place: Free, want: `{"x":{"y":"r3u14"}}`},
		"RegexpStays":                   {text: `[a-z]{3}`, place: Free, want: `[a-z]{3}`},
		"ArithmeticWithoutNameStays":    {text: `{1+2}`, place: Free, want: `{1+2}`},
		"ArithmeticWithoutNameIsStrict": {text: `{1+2}`, place: Strict, want: `3`},
		"ShellVariableStays":            {text: `${node}/x`, place: Free, want: `${node}/x`},
		"UnclosedShellVariableStays":    {text: `${node`, place: Free, want: `${node`},
		"UnknownNameStays":              {text: `a {rakc} b`, place: Free, want: `a {rakc} b`, problem: "column 4: unknown name rakc: this { stays as it is (did you mean rack?)", warned: true},
		"UnknownNameIsStrict":           {text: `a {rakc} b`, place: Strict, problem: "column 4: unknown name rakc"},
		"UnknownNameInArgument":         {text: `{rakc}`, place: Arg, problem: "column 2: unknown name rakc"},
		"UnknownNameIfAlways":           {text: `a {rakc} b`, place: Free, mode: Always, problem: "column 4: unknown name rakc"},
		"DisabledTakesAll":              {text: `{rack}{{`, place: Strict, mode: Disabled, want: `{rack}{{`},
		"AwkStays":                      {text: `{print $1}`, place: Free, want: `{print $1}`, problem: "column 2: unknown name print", warned: true},
		"UnclosedStays":                 {text: `see {node`, place: Free, want: `see {node`, problem: "column 10: missing }", warned: true},
		"ExpressionInsideOfTextStays":   {text: `{print {node}}`, place: Free, want: `{print r3u14}`, problem: "column 2: unknown name print", warned: true},
		"DoubledBracesStayAlone":        {text: `{{ .Values.x }}`, place: Free, want: `{{ .Values.x }}`},
		"DoubledUnknownNameStays":       {text: `{{foo}}`, place: Free, want: `{{foo}}`},
		"DoubledExpressionIsEscaped":    {text: `{{n1}}`, place: Free, want: `{n1}`},
		"DoubledAroundExpression":       {text: `{{{n1}}}`, place: Free, want: `{3}`},
		"DoubledBesideExpression":       {text: `{{x}} {n1}`, place: Free, want: `{x} 3`},
		"DoubledIsStrict":               {text: `a{{b}}c`, place: Strict, want: `a{b}c`},
		"PhaseIsNoText":                 {text: `{node.title()}`, place: Free, problem: "column 7: unknown function title"},
		"PropertyIsRegexp":              {text: `^\p{host}{node}\x{41}$`, place: Regex, want: `^\p{host}r3u14\x{41}$`},
		"EscapedBackslashIsText":        {text: `\\p{node}`, place: Regex, want: `\\pr3u14`},
		"OpenRepetitionIsRegexp":        {text: `x{3,}-[0-9]{1,2}{n1}`, place: Free, mode: Always, want: `x{3,}-[0-9]{1,2}3`},
		"RepetitionIsRegexp":            {text: `n{1,3}{n1}`, place: Regex, want: `n{1,3}3`},
		"ListIsNoLabel":                 {text: `{gpus}{@pci.device}`, place: Strict, problem: "column 7: a whole feature is not a string"},
		"WholeFeatureIsNoAnnotation":    {text: `{@pci.device}`, place: Free, problem: "column 1: a whole feature is not a string"},
		"WholeFeatureInText":            {text: `x{@pci.device}`, place: Arg, problem: "column 2: a whole feature is not a string"},
		"ClosingBraceStays":             {text: `a } b`, place: Free, want: `a } b`},
		"EmptyBracesAreStrict":          {text: `{}`, place: Strict, problem: "column 1: stray {"},
		"CountsCharacters":              {text: `größe {rakc}`, place: Strict, problem: "column 8: unknown name rakc"},
		"MinusInAReference":             {text: `{@local.feature.my-name}`, place: Strict, problem: `column 20: unknown name name (- is subtraction: write @"local.feature.my-name" for the name)`},
		"MinusInAnUnknownVariable":      {text: `{my-rakc}`, place: Strict, problem: "column 2: unknown name my"},
		"ReportsAllUnknownNames":        {text: `{rakc}{n1}{unitt}`, place: Strict, problem: "column 2: unknown name rakc (did you mean rack?)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine("r3u14")
			text, problems := Compile(tc.text, tc.place, tc.mode, m.scope())
			first := ""
			if len(problems) > 0 {
				first = problems[0].Error()
			}
			if !strings.HasPrefix(first, tc.problem) || tc.problem == "" && first != "" {
				t.Errorf("problem %q, want %q", first, tc.problem)
			}
			if refused := tc.problem != "" && !tc.warned; refused != (text == nil) {
				t.Fatalf("refused: %v, want %v", text == nil, refused)
			}
			if text == nil {
				return
			}
			got, err := text.Format(m)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestValues(t *testing.T) {
	tests := map[string]struct {
		text string
		want string // as JSON, to distinguish kinds
	}{
		"NumberStaysNumber":       {`{n1+1}`, `4`},
		"FormatMakesText":         {`{n1:d}`, `"3"`},
		"TextAroundMakesText":     {`{n1}{n2}`, `"314"`},
		"ListStaysList":           {`{gpus}`, `["a100","h100"]`},
		"FeatureStaysList":        {`{@pci.device}`, `[{"class":"0200","vendor":"8086"}]`},
		"FeatureStaysMap":         {`{@kernel.version}`, `{"major":"6","minor":"8"}`},
		"FlagIsTrue":              {`{@cpu.cpuid.AVX}`, `true`},
		"FlagsAreList":            {`{@cpu.cpuid}`, `["AVX","SSE4"]`},
		"SlicesList":              {`{gpus[1:]}`, `["h100"]`},
		"LastOfList":              {`{gpus[-1]}`, `"h100"`},
		"MapKey":                  {`{@kernel.version["major"]}`, `"6"`},
		"Attribute":               {`{@pci.device[0]["vendor"]}`, `"8086"`},
		"Item":                    {`{item.name}`, `"eth0"`},
		"ItemWithArithmetic":      {`{item["speed"]/1000}`, `25`},
		"Matched":                 {`{matched.pci.device[0].vendor}`, `"10de"`},
		"NodeName":                {`{nodename.upper()}`, `"R3U14"`},
		"NodeLabel":               {`{node.labels["topology.kubernetes.io/zone"]}`, `"eu-1"`},
		"NodeNameField":           {`{node.name[0]}`, `"r"`},
		"ShrinksALongText":        {`{@long.text.x.replace("x", "").len()}`, `0`},
		"DefaultForMissing":       {`{@kernel.version.nope.default("x")}`, `"x"`},
		"DefaultForMissingNumber": {`{n9.default(0)}`, `0`},
		"DefaultForUnset":         {`{unset.default(rack)}`, `"3"`},
		"DefaultKeepsValue":       {`{rack.default("x")}`, `"3"`},
		"DefaultOfDefault":        {`{n9.default(n8).default(1)}`, `1`},
		"Join":                    {`{gpus.join("+")}`, `"a100+h100"`},
		"Length":                  {`{gpus.len()+node.len()}`, `7`},
		"EmptyLength":             {`{@usb.device.len()}`, `0`},
		"Trim":                    {`{(" x ").trim().len()+n1*0}`, `1`},
		"Number":                  {`{serial.int()}`, `123`},
		"NumberBeforeLast":        {`{node.num(-1)}`, `3`},
		"FloorsNegative":          {`{-7/2*1}`, `-4`},
		"RemainderOfNegative":     {`{7%-3}`, `-2`},
		"UnaryBindsTighter":       {`{-n1.block_number(2)}`, `-2`},
		"Precedence":              {`{1|2^3&4<<1+2*3}`, `3`},
		"LeftAssociative":         {`{100/10/5-1-1}`, `0`},
		"LargestShift":            {`{1<<62}`, `4611686018427387904`},
		"ReplaceWithBrace":        {`{node.replace("r", "}")}`, `"}3u14"`},
		"BlanksInside":            {`{n1 + 1 }`, `4`},
		"SingleQuotes":            {`{node.replace('r','x')}`, `"x3u14"`},
		"QuotedVar":               {`{vars['location.u']}`, `"014"`},
		"VarByPrefix":             {`{vars.rack}`, `"3"`},
		"Label":                   {`{@system.dmiid.product_name.label()}`, `"PowerEdge-R640-Gr-e-2"`},
		"LabelOfVendor":           {`{@system.dmiid.sys_vendor.label()}`, `"Dell-Inc"`},
		"SlicesCharacters":        {`{@system.dmiid.product_name[16:21]}`, `"Größe"`},
		"HashIsStable":            {`{node.hash(1000)}`, `554`},
		"ClampsSlice":             {`{node[-99:99]}`, `"r3u14"`},
		"EmptySlice":              {`{node[3:1]}`, `""`},
		"SplitAndIndex":           {`{("a-b").split("-")[n1-2]}`, `"b"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine("r3u14")
			m.features["long.text"] = OfMap(Texts{"x": strings.Repeat("x", maxValue-1)})
			m.item = OfMap(Texts{"name": "eth0", "speed": "25000"})
			s := m.scope()
			s.Item, s.Matched = true, true
			text, problems := Compile(tc.text, Arg, Auto, s)
			if text == nil {
				t.Fatal(problems)
			}
			got, err := text.Eval(m)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got.appendJSON(nil))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.text, diff)
			}
		})
	}
}

func TestEvaluationErrors(t *testing.T) {
	tests := map[string]struct {
		text, want string
		missing    bool
	}{
		"MissingElement":   {`x{@kernel.version.nope}`, "column 3: no value for @kernel.version.nope", true},
		"MissingFeature":   {`{@no.such[0]}`, "column 2: no value for @no.such", true},
		"MissingNumber":    {`{n3}`, "column 2: the node's name has no number n3", true},
		"MissingVar":       {`{unset}`, "column 2: no value for unset", true},
		"MissingIndex":     {`{gpus[2]}`, "column 6: no element 2", true},
		"MissingCharacter": {`{node[9]}`, "column 6: no element 9", true},
		"MissingKey":       {`{node.labels["x"]}`, "column 13: no element x", true},
		"MissingNum":       {`{node.num(9)}`, `column 7: "r3u14" has no number 9`, true},
		"Masked":           {`{@system.dmiid.product_serial}`, "column 2: the value is masked", false},
		"MaskedKey":        {`{@system.dmiid["product_serial"]}`, "column 15: the value is masked", false},
		"MaskedDefault":    {`{@system.dmiid.product_serial.default("x")}`, "column 2: the value is masked", false},
		"NoNumber":         {`{rack+u}`, `column 7: "abc" is not a number`, false},
		"Overflow":         {`{n2<<62}`, "column 4: the result does not fit into 64 bits", false},
		"AddOverflow":      {`{9223372036854775807+n1}`, "column 21: the result does not fit", false},
		"SubtractOverflow": {`{-9223372036854775807-n1}`, "column 22: the result does not fit", false},
		"MultiplyOverflow": {`{n2*9223372036854775807}`, "column 4: the result does not fit", false},
		"DivisionByZero":   {`{n1/(n1-3)}`, "column 4: division by zero", false},
		"NegativeShift":    {`{1<<(n1-9)}`, "column 3: shift by -6", false},
		"ElementOfText":    {`{rack.default("x")[0].x}`, "column 23: a string has no element x", false},
		"ListAsText":       {`{gpus}`, "column 2: a list is not a string", false},
		"ElementOfList":    {`{gpus.vendor}`, "column 7: a list has no element vendor", false},
		"TextFormat":       {`{u:03d}`, `column 2: "abc" is not a number`, false},
		"LongText":         {`{@long.text.x}y`, "column 2: the result is longer than 1024 bytes", false},
		"HugeText":         {`{@long.text.huge.upper().len()}`, "column 18: text longer than 16384 bytes", false},
		"GrowingText":      {`{@long.text.x.replace("x", "xxxxxxxxxxxxxxxxxxxx").len()}`, "column 15: replace makes a string longer", false},
		"ManyParts":        {`{@long.text.x.split("x").len()}`, "column 15: split makes more than 256 parts", false},
		"LargeNumber":      {`{@long.text.digits.num(1)}`, "column 20: number 999", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine("r3u14")
			m.features["long.text"] = OfMap(Texts{
				"x": strings.Repeat("x", MaxResult), "huge": strings.Repeat("x", maxValue+1), "digits": strings.Repeat("9", 99)})
			text, problems := Compile(tc.text, Strict, Auto, m.scope())
			if text == nil {
				t.Fatal(problems)
			}
			got, err := text.Format(m)
			var e *Error
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), tc.want) || e.Missing != tc.missing {
				t.Errorf("%s: got %q, %+v, want %s", tc.text, got, err, tc.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"KeyWithoutQuotes":    {`{@pci.device[0][vendor]}`, `column 17: unknown name vendor (a key needs quotes: ["vendor"])`},
		"FeatureWithoutAt":    {`{kernel.version.major}`, "column 2: unknown name kernel.version.major (a feature begins with @: @kernel.version.major)"},
		"UnknownBeforeParens": {`{uper(node)}`, "column 2: unknown name uper"},
		"FunctionBeforeValue": {`{upper(node)}`, "column 2: unknown name upper (functions follow a value: node.upper())"},
		"FunctionWithoutCall": {`{node.name.upper}`, "column 12: a string has no element upper (a function needs parentheses: .upper())"},
		"UnknownFunction":     {`{node.uper()}`, "column 7: unknown function uper (did you mean upper?)"},
		"ItemOutsideOfLoop":   {`{item.name}`, "column 2: item exists only in a loop"},
		"MatchedNothing":      {`{matched.pci.device}`, "column 2: matched needs matchFeatures or matchAny"},
		"NumberTooHigh":       {`{n1000}`, "column 2: unknown name n1000"},
		"Step":                {`{node[::2]}`, "column 8: a slice has no step"},
		"IndexOfNumber":       {`{n1[0]}`, "column 4: a number has no index"},
		"NoReference":         {`{@kernel}`, "column 2: @kernel names no feature"},
		"LongNumber":          {`{9223372036854775808}`, "column 2: bad number 9223372036854775808"},
		"TextIsNoNumber":      {`{n1+"x"}`, `column 4: "x" is not a number`},
		"TextOnNumber":        {`{n1:s}`, "column 2: a number cannot be formatted as text"},
		"PrecisionOfNumber":   {`{n1:.2}`, "column 2: a number has no precision"},
		"CommaInHex":          {`{n1:,x}`, "column 7: bad format specification ,x"},
		"WideFormat":          {`{n1:64d}`, "column 8: bad format specification 64d"},
		"NestedFormat":        {`{n1:{n1}d}`, "column 8: bad format specification {n1"},
		"NoArguments":         {`{node.replace("a")}`, `column 7: replace takes 2 arguments (as in node.replace("a", "b"))`},
		"BlockOfZero":         {`{n1.block_number(0)}`, "column 5: block_number needs a number above zero"},
		"HashOfZero":          {`{node.hash(0)}`, "column 7: hash needs a number above zero"},
		"NumbersToReplace":    {`{node.replace(1,2)}`, "column 7: replace needs text, in quotes"},
		"CollectionAsNumber":  {`{@pci.device+1}`, "column 2: a whole feature is not a number"},
		"CollectionAsText":    {`{@pci.device.upper()}`, "column 14: a whole feature is not a string"},
		"VarsWithoutName":     {`{vars}`, "column 2: vars needs a name"},
		"VarsWithBareName":    {`{vars[rack]}`, "column 7: vars needs a quoted name"},
		"MissingParenthesis":  {`{(n1}`, "column 5: missing )"},
		"MissingQuote":        {`{node.replace("a}`, "column 15: missing closing quote"},
		"ManyParts":           {"{" + strings.Repeat("n1+", MaxNodes) + "n1}", "column"},
		"DeepParentheses":     {"{" + strings.Repeat("(", maxDepth) + "n1", "column"},
		"ManyExpressions":     {strings.Repeat("{n1}", MaxExpressions+1), "column 1: 33 expressions, 32 are allowed"},
		"LongSource":          {strings.Repeat("x", MaxText-3) + "{n1}", "column 1: text of 4097 bytes is longer than 4096"},
		"LongLiteral":         {strings.Repeat("x", MaxResult+1) + "{n1}", "column 1: the result would be longer than 1024 bytes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, problems := Compile(tc.text, Strict, Auto, newMachine("r3u14").scope())
			if text != nil {
				t.Fatal("it was accepted")
			}
			if got := problems[0].Error(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestLimitsAreReachable(t *testing.T) {
	for name, text := range map[string]string{
		"Parts":       "{" + strings.Repeat("1+", MaxNodes/2-1) + "n1}",
		"Expressions": strings.Repeat("{n1}", MaxExpressions),
		"Format":      "{n1:>+063,d}",
		"Number":      "{9223372036854775807}",
		"N999":        "{n999.default(1)}",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("r3u14")
			compiled, problems := Compile(text, Strict, Auto, m.scope())
			if compiled == nil {
				t.Fatal(problems)
			}
			if _, err := compiled.Format(m); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFormats(t *testing.T) {
	tests := map[string]string{
		"{n1:08b}": "00000011", "{n2:#06x}": "0x000e", "{n2:#X}": "0XE", "{n2:o}": "16", "{n2:#o}": "0o16", "{-n2:05d}": "-0014", "{-n2:=5}": "-  14",
		"{n2:*^7}": "**14***", "{n2:<05}": "14000", "{node:.2}": "r3", "{node:-^9}": "--r3u14--", "{node:<7s}|": "r3u14  |",
		"{n2*1000000:012,}": "0,014,000,000", "{unit:03}": "007", "{-n1:x}": "-3", "{n1:+}": "+3", "{@cpu.cpuid.AVX:>5}": " true", "{n2:ö>4}": "öö14",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			m := newMachine("r3u14")
			compiled, problems := Compile(text, Strict, Auto, m.scope())
			if compiled == nil {
				t.Fatal(problems)
			}
			if got, err := compiled.Format(m); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestPhaseWithoutMetadata(t *testing.T) {
	for _, place := range []Place{Strict, Free, Var, Arg} {
		text, problems := Compile(`{node.labels["x"]}`, place, Auto, &Scope{})
		if text != nil || !strings.Contains(problems[0].Message, "node.labels cannot be read in this phase") {
			t.Errorf("place %d: %v", place, problems)
		}
	}
}

func TestOpenScopeTakesUndeclaredNames(t *testing.T) {
	text, problems := Compile("{a.b}", Strict, Auto, &Scope{Open: true})
	if text == nil {
		t.Fatal(problems)
	}
	m := newMachine("n1")
	m.vars["a.b"] = OfText("x")
	if got, err := text.Format(m); err != nil || got != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBudgetStopsEvaluation(t *testing.T) {
	m := newMachine("n1")
	text, problems := Compile("{n1+1+n1}", Strict, Auto, m.scope())
	if text == nil {
		t.Fatal(problems)
	}
	m.left = 5
	if _, err := text.Format(m); err != nil || m.left != 0 {
		t.Errorf("%v, %d steps left", err, m.left)
	}
	if _, err := text.Format(m); !errors.Is(err, ErrBudget) {
		t.Errorf("got %v, want %v", err, ErrBudget)
	}
}

func TestTextSaysWhatItReads(t *testing.T) {
	s := newMachine("n1").scope()
	s.Item, s.Matched = true, true
	text, problems := Compile(`{rack}{location.u}{@b.c.d}{@a.b[0].x}{item.y}{matched.a.b[0].c}{rack}`, Free, Auto, s)
	if text == nil {
		t.Fatal(problems)
	}
	if diff := cmp.Diff([]string{"location.u", "rack"}, text.Names()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a.b", "b.c"}, text.Features()); diff != "" {
		t.Error(diff)
	}
	if text.ReadsNode() || !text.ReadsMatched() {
		t.Errorf("node %v, matched %v", text.ReadsNode(), text.ReadsMatched())
	}
}

// The time to compile a long string without expressions must be proportional to its length.
func BenchmarkCompileHostileText(b *testing.B) {
	for name, piece := range map[string]string{"Shell": "${", "Format": "{n1:", "Doubled": "{{a", "Quote": "{n1['", "Name": "{a.b"} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(piece, 1<<16/len(piece))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Compile(text, Free, Auto, nil)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	refs := map[string][]string{"a": {"c", "other"}, "b": nil, "c": {"b"}}
	order, err := Order([]string{"a", "b", "c"}, func(name string) []string { return refs[name] })
	if diff := cmp.Diff([]string{"b", "c", "a"}, order); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	refs["b"] = []string{"a"}
	_, err = Order([]string{"a", "b", "c"}, func(name string) []string { return refs[name] })
	if err == nil || !strings.HasSuffix(err.Error(), "a → c → b → a") {
		t.Errorf("got %v", err)
	}
	refs["a"] = []string{"a"}
	if _, err = Order([]string{"a"}, func(name string) []string { return refs[name] }); err == nil || !strings.HasSuffix(err.Error(), ": a → a") {
		t.Errorf("got %v", err)
	}
}

func TestCaret(t *testing.T) {
	tests := map[string]struct {
		text   string
		column int
		want   string
	}{
		"Start":       {"{rakc}", 6, "{rakc}\n     ^"},
		"End":         {"{n1", 4, "{n1\n   ^"},
		"SecondLine":  {"one\ntwo {x}\nthree", 10, "two {x}\n     ^"},
		"Characters":  {"größe {x}", 9, "größe {x}\n        ^"},
		"Tab":         {"a\t{x}", 4, "a {x}\n   ^"},
		"EarlyColumn": {strings.Repeat("a", 100), 5, strings.Repeat("a", 72) + "\n    ^"},
		"LateColumn":  {strings.Repeat("a", 60), 50, strings.Repeat("a", 60) + "\n" + strings.Repeat(" ", 49) + "^"},
		"WholeLine":   {strings.Repeat("a", 72), 50, strings.Repeat("a", 72) + "\n" + strings.Repeat(" ", 49) + "^"},
		"Beyond":      {"x", 99, "x\n ^"},
		"LongLine":    {strings.Repeat("a", 100) + "{x}" + strings.Repeat("b", 100), 103, strings.Repeat("a", 34) + "{x}" + strings.Repeat("b", 35) + "\n" + strings.Repeat(" ", 36) + "^"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Caret(tc.text, tc.column)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLabelKeepsLongTextsApart(t *testing.T) {
	m := newMachine("n1")
	m.vars["a"], m.vars["b"] = OfText(strings.Repeat("x", 99)+"1"), OfText(strings.Repeat("x", 99)+"2")
	var got []string
	for _, name := range []string{"a", "b"} {
		text, _ := Compile("{"+name+".label()}", Strict, Auto, m.scope())
		label, err := text.Format(m)
		if err != nil || len(label) != maxLabel {
			t.Fatalf("%q, %v", label, err)
		}
		got = append(got, label)
	}
	if got[0] == got[1] {
		t.Errorf("both are %s", got[0])
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		"rack{(n1-1)/42+1}", "{n1:08,d}", `{host.split("-")[1].upper()}`, "{@pci.device[0].vendor}", `{@"a.b.c"}`, "{{n1}}", "{{{n1}}}",
		`{"a":{"b":"{node}"}}`, "{rack.default(1)[1:2]}", "${x}", `\p{L}{n1}`, "{-(-n1)%3<<2}", "{gpus.join(',')}", "{node.replace('r','rrrrrr')}",
	} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, source string, place uint8) {
		m := newMachine("r3u14.example.com")
		m.item = OfMap(Texts{"a": "1"})
		s := m.scope()
		s.Item, s.Matched = true, true
		text, problems := Compile(source, Place(place%5), Auto, s)
		for _, p := range problems {
			if p.Column < 0 || p.Column > len(source) || p.Message == "" {
				t.Errorf("problem %+v", p)
			}
			Caret(source, p.Column)
		}
		if text == nil {
			if len(problems) == 0 {
				t.Error("refused without a problem")
			}
			return
		}
		got, err := text.Format(m)
		if err == nil && !text.IsLiteral() && len(got) > MaxResult {
			t.Errorf("result of %d bytes", len(got))
		}
		if again, againErr := text.Format(m); again != got || fmt.Sprint(againErr) != fmt.Sprint(err) && !errors.Is(againErr, ErrBudget) {
			t.Errorf("first %q, %v, then %q, %v", got, err, again, againErr)
		}
		if _, err := text.Eval(m); err != nil && err.Error() == "" {
			t.Error("error without a message")
		}
	})
}
