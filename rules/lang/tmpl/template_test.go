package tmpl_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// sample is the result of a rule with four terms.
func sample() []match.FeatureElements {
	return []match.FeatureElements{
		{Feature: "cpu.cpuid", Elements: []match.Element{{Name: "AVX"}, {Name: "AVX2"}, {Name: "SSE4.2"}}},
		{Feature: "system.osRelease", Elements: []match.Element{
			{Name: "ID", Value: "ubuntu", HasValue: true}, {Name: "VERSION_ID.major", Value: "22", HasValue: true}}},
		{Feature: "pci.device", Elements: []match.Element{
			{Instance: instance(map[string]string{"class": "0300", "vendor": "10de", "device": "1db6", "sriov_totalvfs": "8"})},
			{Instance: instance(map[string]string{"class": "0200", "vendor": "8086", "device": "158b"})}}},
		{Feature: "a.b.c", Elements: []match.Element{{Name: "x", Value: "y", HasValue: true}}},
		{Feature: "Plain", Elements: []match.Element{{Name: "z"}}},
	}
}

type env struct{}

func (env) NodeName() string { return "rack3-unit14" }
func (env) Var(name string) (string, bool) {
	return "red", name == "color"
}

func TestExpand(t *testing.T) {
	tests := map[string]struct {
		strict bool
		source string
		want   map[string]string
		fails  string
	}{
		"Flags":              {source: "{{ range .cpu.cpuid }}cpu-{{ .Name }}=true\n{{ end }}", want: map[string]string{"cpu-AVX": "true", "cpu-AVX2": "true", "cpu-SSE4.2": "true"}},
		"Instances":          {source: "{{ range .pci.device }}intel-{{ .class }}-{{ .device }}=present\n{{ end }}", want: map[string]string{"intel-0300-1db6": "present", "intel-0200-158b": "present"}},
		"KeyAsTyped":         {source: "{{ range .system.osRelease }}{{ .Name }}={{ .Value }}\n{{ end }}", want: map[string]string{"ID": "ubuntu", "VERSION_ID.major": "22"}},
		"KeyInLowerCase":     {source: "{{ range .system.osrelease }}{{ .Name }}={{ .Value }}\n{{ end }}", want: map[string]string{"ID": "ubuntu", "VERSION_ID.major": "22"}},
		"SecondDot":          {source: `x={{ (index (index .a "b.c") 0).Value }}`, want: map[string]string{"x": "y"}},
		"NoDot":              {source: `x={{ (index .plain "" | first).Name }}`, want: map[string]string{"x": "z"}},
		"Count":              {source: "n={{ len .pci.device }}", want: map[string]string{"n": "2"}},
		"NoEqualsIsTrue":     {source: "foo\n bar = baz \n\n", want: map[string]string{"foo": "true", "bar ": " baz"}}, //nolint:gocritic // the blank stays
		"StrictNoEquals":     {strict: true, source: "foo", fails: `the line "foo" of the output has no =`},
		"LaterLineWins":      {source: "a=1\na=2", want: map[string]string{"a": "2"}},
		"FirstEquals":        {source: "a=b=c", want: map[string]string{"a": "b=c"}},
		"CRLF":               {source: "a=1\r\nb=2\r\n", want: map[string]string{"a": "1", "b": "2"}},
		"Nothing":            {source: "{{ if false }}a=1{{ end }}"},
		"OnlyDefinitions":    {source: `{{ define "a" }}x=1{{ end }}`},
		"MissingFeature":     {source: "ok=1\n\n{{ range .usb.device }}x=1{{ end }}", fails: "line 3, column 10: no matcher of this rule gives .usb.device"},
		"MissingAttr":        {source: "{{ range .pci.device }}{{ .sriov_totalvfs }}=1\n{{ end }}", fails: `line 1, column 27: the element has no "sriov_totalvfs"`},
		"FlagHasNoValue":     {source: "{{ range .cpu.cpuid }}{{ .Value }}=1\n{{ end }}", fails: "a flag has a Name, and no Value"},
		"FieldOfAList":       {source: "x={{ .pci.device.device }}", fails: "line 1, column 6: .pci.device is a list: use range, or (index .pci.device 0).device for the first element"},
		"FieldOfAttributes":  {source: "x={{ .system.osrelease.ID }}", fails: "line 1, column 6: .system.osrelease is a list of elements with Name and Value: use range"},
		"FieldOfAnAttribute": {source: "{{ range .system.osrelease }}x={{ .ID }}{{ end }}", fails: "an attribute has a Name and a Value, and no ID"},
		"KeyOfTheData":       {source: "x={{ .count }}", fails: `line 1, column 6: the data has no key "count"; it has .cpu.cpuid, `},
		"FieldOfAString":     {source: "x={{ (node).name }}", fails: "can't evaluate field name in a string"},
		"IndexIsLenient":     {source: `{{ range .pci.device }}{{ .class }}={{ index . "sriov_totalvfs" }}` + "\n{{ end }}", want: map[string]string{"0300": "8", "0200": ""}},
		"ElementsAreMaps":    {source: `{{ range .system.osrelease }}{{ if and (hasKey . "Value") (has "Name" (keys .)) }}{{ get . "Name" }}={{ get . "Value" }}{{ end }}` + "\n{{ end }}", want: map[string]string{"ID": "ubuntu", "VERSION_ID.major": "22"}},
		"Env":                {source: `{{ node }}={{ n 1 }}-{{ n 2 }}-{{ n 0 }}-{{ var "color" }}`, want: map[string]string{"rack3-unit14": "3-14-14-red"}},
		"MissingVar":         {source: `a={{ var "size" }}`, fails: `no earlier rule set "size"`},
		"MissingNumber":      {source: `a={{ n 9 }}`, fails: "has no number 9"},
		"Fail":               {source: `{{ fail "no such luck" }}`, fails: "line 1, column 4: no such luck"},
		"Break":              {source: "{{ range .cpu.cpuid }}{{ if eq .Name \"AVX2\" }}{{ break }}{{ end }}{{ .Name }}=1\n{{ end }}", want: map[string]string{"AVX": "1"}},
		"Continue":           {source: "{{ range .cpu.cpuid }}{{ if eq .Name \"AVX2\" }}{{ continue }}{{ end }}{{ .Name }}=1\n{{ end }}", want: map[string]string{"AVX": "1", "SSE4.2": "1"}},
		"NilIndex":           {source: `{{ index nil 0 }}`, fails: "can't index a nil"},
		"DivisionByZero":     {source: `a={{ div 1 0 }}`, fails: "division by zero"},
		"AppendKeeps":        {source: `{{ $a := list 1 2 }}{{ $b := append $a 3 }}{{ $c := append $a 4 }}b={{ join "" $b }}` + "\n" + `c={{ join "" $c }}`, want: map[string]string{"b": "123", "c": "124"}},
		"Recursion":          {source: `{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`, fails: "more than 20 deep"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			compiled, problems := tmpl.Compile(tc.source, tmpl.Options{Strict: tc.strict})
			if compiled == nil {
				t.Fatalf("does not compile: %v", problems)
			}
			for range 2 { // an expansion must not affect the next one
				got, err := compiled.Expand(sample(), env{})
				if tc.fails == "" && err != nil || tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)) {
					t.Fatalf("got error %v, want %q", err, tc.fails)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestFunctions(t *testing.T) {
	tests := map[string]string{
		`upper "a" | lower | title`: "A", `title "foo bar-baz"`: "Foo Bar-Baz", `untitle "Foo Bar"`: "foo bar",
		`trim "  a "`: "a", `trimAll "$" "$5$"`: "5", `trimPrefix "a" "ab"`: "b", `trimSuffix "b" "ab"`: "a",
		`replace " " "-" "Dell Inc. X"`: "Dell-Inc.-X", `"Dell Inc." | replace " " "_" | trunc 6`: "Dell_I", `trunc -2 "hello"`: "lo",
		`contains "b" "abc"`: "true", `hasPrefix "a" "abc"`: "true", `hasSuffix "a" "abc"`: "false", `substr 1 3 "hello"`: "el",
		`substr -1 2 "hello"`: "he", `substr 2 -1 "hello"`: "llo", `repeat 3 "ab"`: "ababab", `nospace "a b c"`: "abc",
		`splitList "," "a,b,c" | join "-"`: "a-b-c", `(split "." "5.14.0")._1`: "14", `(splitn "." 2 "5.14.0")._1`: "14.0",
		`quote "a" 1`: `"a" "1"`, `squote "a"`: "'a'", `cat "a" 1 "b"`: "a 1 b", `toString 5`: "5", `list 1 "a" true | toStrings | join ","`: "1,a,true",
		`default "x" ""`: "x", `"y" | default "x"`: "y", `empty 0`: "true", `coalesce 0 "" "a"`: "a", `ternary "a" "b" true`: "a", `true | ternary "a" "b"`: "a",
		`int "42"`: "42", `int64 4.7`: "4", `int "x"`: "0", `int "007"`: "7", `atoi "12"`: "12", `add 1 "2" 3`: "6", `sub 5 3`: "2", `mul 2 3 4`: "24", `div 7 2`: "3",
		`mod 7 2`: "1", `max 1 5 3`: "5", `min 4 2 3`: "2", `add1 4`: "5", `floor 1.7`: "1", `ceil 1.2`: "2", `round 3.14159 2`: "3.14", `float64 "1.5" | mulf 2`: "3",
		`list 1 2 3 | first`: "1", `list 1 2 3 | last`: "3", `rest (list 1 2 3) | join ""`: "23", `initial (list 1 2 3) | join ""`: "12",
		`uniq (list "a" "b" "a") | join ""`: "ab", `sortAlpha (list "b" "a") | join ""`: "ab", `has "a" (list "a")`: "true", `has (list 1) (list (list 1 2))`: "false",
		`has (list 1 2) (list (list 1))`: "false", `has (list 1 3) (list (list 1 2))`: "false", `has (list 1 2) (list (list 1 2))`: "true", `without (list 1 2 3) 2 | join ""`: "13",
		`reverse (list 1 2) | join ""`: "21", `compact (list "" "a") | join "-"`: "a", `prepend (list 2) 1 | join ""`: "12",
		`get (dict "a" "b") "a"`: "b", `hasKey (dict "a" 1) "b"`: "false", `keys (dict "b" 1 "a" 2) | join ""`: "ab", `values (dict "b" 1 "a" 2) | join ""`: "21",
		`keys (pick (dict "a" 1 "b" 2) "a") | join ""`: "a", `keys (omit (dict "a" 1 "b" 2) "a") | join ""`: "b",
		`regexMatch "^a+$" "aaa"`: "true", `regexFind "[0-9]+" "a12b"`: "12", `regexReplaceAll "[^A-Za-z0-9]+" "a b/c" "-"`: "a-b-c",
		`regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W"`: "-W-xxW-", `regexFindAll "[0-9]" "1a2b3" 2 | join ""`: "12", `regexSplit "z+" "fzzo" -1 | join "-"`: "f-o",
		`regexQuoteMeta "1.2"`: `1\.2`, `mustRegexMatch "a" "b"`: "false",
		`semverCompare ">=5.10" "5.14.0-362.el9.x86_64"`: "true", `semverCompare "~1.2" "1.3.0"`: "false", `semverCompare "^1.2" "1.9"`: "true", `semverCompare "^0.2" "0.3"`: "false",
		`semverCompare ">= 1.2, < 2 || 4.x" "4.7"`: "true", `semverCompare "1.2.*" "1.2.9"`: "true", `semverCompare "!=1.0" "1.0"`: "false", `(semver "5.14.1-rc1").Minor`: "14", `semver "1.2.3"`: "1.2.3", `semver "v6.1" | toString`: "6.1.0", `printf "%v" (semver "5.14.1-rc1+b")`: "5.14.1-rc1+b",
		`(semver "v6.1").Original`: "v6.1", `int64 "99999999999999999999"`: "0", `add "-99999999999999999999" 1`: "1", `atoi "99999999999999999999"`: "9223372036854775807",
		`mul 9223372036854775807 2`: "-2", `get (semver "6.1") "Minor"`: "1", `hasKey (dict "a" 1) "a"`: "true",
		`(semver "5.14.1-rc1+b").Prerelease`: "rc1",
		`until 3 | join ""`:                  "012", `seq 3`: "1 2 3", `seq 2 4`: "2 3 4", `seq 5 -2 1`: "5 3 1", `seq 0`: "1 0",
		`sha256sum "a" | trunc 8`: "ca978112", `b64enc "hi"`: "aGk=", `b64dec "aGk="`: "hi", `toJson (dict "a" (list 1 "x"))`: `{"a":[1,"x"]}`, `kindOf (list)`: "slice", `kindIs "string" "a"`: "true",
		`base "/a/b.c"`: "b.c", `dir "/a/b"`: "/a", `ext "a.b"`: ".b", `html "<a>"`: "&lt;a&gt;", `urlquery "a b"`: "a+b",
	}
	for source, want := range tests {
		t.Run(source, func(t *testing.T) {
			compiled, problems := tmpl.Compile("x={{ "+source+" }}", tmpl.Options{})
			if compiled == nil {
				t.Fatal(problems)
			}
			got, err := compiled.Expand(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got["x"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompileProblems(t *testing.T) {
	tests := map[string]struct {
		source string
		want   []string
	}{
		"Syntax":         {"a=1\n{{ range }}", []string{"line 2, column 1: missing value for range"}},
		"Unclosed":       {"{{ if true }}", []string{"line 1, column 1: unexpected EOF"}},
		"Random":         {"{{ uuidv4 }}", []string{`line 1, column 4: the function "uuidv4" is not available: it is random, so the node would change with every evaluation; derive the string from the node with sha256sum`}},
		"Clock":          {"\n {{ now }}", []string{`line 2, column 5: the function "now" is not available: it depends on the clock, so the node would change without a cause; use an expiry time in a feature file`}},
		"AllAtOnce":      {`{{ env "A" }}{{ genCA "a" 1 }}`, []string{"reads the environment", "slow by design"}},
		"Misspelled":     {`{{ ToUpper "a" }}{{ hasprefix "a" "b" }}`, []string{`unknown function "ToUpper"`, `did you mean "hasPrefix"?`}},
		"Arity":          {`{{ upper }}{{ trunc 1 }}{{ max }}`, []string{"upper takes 1 arguments, not 0", "trunc takes 2 arguments, not 1", "max takes at least 1 arguments, not 0"}},
		"BadPattern":     {`{{ regexMatch "(" "a" }}`, []string{"missing closing )"}},
		"LongPattern":    {`{{ regexMatch "` + strings.Repeat("a", 2000) + `" "a" }}`, []string{"the pattern is 2000 bytes long"}},
		"UnknownDefine":  {`{{ template "x" }}`, []string{`template "x" is not defined`}},
		"NotAFunction":   {`{{ .a.b 1 }}`, []string{"can't give arguments to .a.b"}},
		"TooLong":        {strings.Repeat("a", tmpl.MaxSource+1), []string{"the template is 65537 bytes long"}},
		"Parentheses":    {"{{ " + strings.Repeat("(", 9000) + "1" + strings.Repeat(")", 9000) + " }}", []string{"nest more than 100 deep"}},
		"Blocks":         {strings.Repeat("{{if 1}}", 4000) + strings.Repeat("{{end}}", 4000), []string{"nest more than 100 deep"}},
		"ElseIfs":        {"{{if 1}}" + strings.Repeat("{{else if 1}}", 3000) + "{{end}}", []string{"nest more than 100 deep"}},
		"NotNestedAtAll": {strings.Repeat("{{if 1}}{{end}}", 1000) + "{{/* (((((( */}}", nil},
		"BareLine":       {"{{ range .cpu.cpuid }}\ncpu-{{ .Name }}\n{{ end }}b=1", []string{"line 2, column 1: this line has no ="}},
		"ComputedLine":   {"{{ range .cpu.cpuid }}{{ printf \"%s=1\" .Name }}\n{{ end }}", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, problems := tmpl.Compile(tc.source, tmpl.Options{})
			if len(problems) != len(tc.want) {
				t.Fatalf("got %v, want %q", problems, tc.want)
			}
			for i, p := range problems {
				if !strings.Contains(p.Error(), tc.want[i]) {
					t.Errorf("got  %s\nwant %s", p.Error(), tc.want[i])
				}
			}
		})
	}
}

func TestDataPaths(t *testing.T) {
	source := `{{ range .pci.device }}{{ .class.x }}{{ end }}{{ with .cpu }}{{ len .cpuid }}{{ end }}{{ len $.usb.device }}
{{ if .kernel.version }}{{ index . "a" "b.c" }}{{ end }}{{ len .pci.device }}`
	compiled, problems := tmpl.Compile(source, tmpl.Options{})
	if compiled == nil {
		t.Fatal(problems)
	}
	want := map[string]bool{"pci.device": false, "cpu.cpuid": true, "usb.device": false, "kernel.version": false, "a.b.c": true}
	got := map[string]bool{}
	for _, p := range compiled.DataPaths() {
		got[p.Feature()] = p.Conditional
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("feature and whether it is conditional (-want +got):\n%s", diff)
	}
}

// TestBombs runs templates that take seconds and gigabytes in NFD. Each must be rejected or fail within a memory limit.
func TestBombs(t *testing.T) {
	const bound = 4 << 20 // for compiling and expanding; parsing 64 KiB of source takes more than 1 MiB
	double := `{{ $x := "aaaaaaaaaaaaaaaa" }}` + strings.Repeat(`{{ $x = print $x $x }}`, 40)
	share := `{{ $x := list 1 }}` + strings.Repeat(`{{ $x = list $x $x }}`, 40)
	var nested strings.Builder
	for i := range 60 {
		fmt.Fprintf(&nested, "\nv%d{{ end }}", i)
	}
	bombs := map[string]string{
		"Repeat":          `{{ repeat 100000000 "x" }}`,
		"RepeatOverflow":  `{{ repeat 9223372036854775807 "xx" }}`,
		"Until":           `{{ until 2000000 }}`,
		"UntilLabels":     `{{ range until 2000000 }}a{{ . }}=1` + "\n" + `{{ end }}`,
		"RangeInt":        `{{ range 1000000000 }}{{ end }}`,
		"NestedRange":     `{{ range until 3000 }}{{ range until 3000 }}{{ end }}{{ end }}`,
		"NestedRangeInt":  `{{ range 3000 }}{{ range 3000 }}a{{ end }}{{ end }}`,
		"Seq":             `{{ seq 1 100000000 }}`,
		"SeqOverflow":     `{{ seq -9223372036854775807 9223372036854775807 }}`,
		"GenPrivateKey":   `{{ genPrivateKey "rsa" }}`,
		"DerivePassword":  `{{ derivePassword 1 "long" "a" "b" "c" }}`,
		"Bcrypt":          `{{ bcrypt "a" }}`,
		"GenCA":           `{{ genCA "a" 365 }}`,
		"RandAlpha":       `{{ randAlpha 5000000 }}`,
		"Now":             `{{ now }}`,
		"UUID":            `{{ uuidv4 }}`,
		"Env":             `{{ env "HOME" }}`,
		"ExpandEnv":       `{{ expandenv "$HOME" }}`,
		"HostByName":      `{{ getHostByName "a" }}`,
		"Recursion":       `{{ define "a" }}{{ template "a" . }}{{ template "a" . }}{{ end }}{{ template "a" . }}`,
		"Fan":             `{{ define "a" }}{{ range 100 }}{{ template "b" }}{{ end }}{{ end }}{{ define "b" }}{{ range 100 }}{{ template "c" }}{{ end }}{{ end }}{{ define "c" }}{{ range 100 }}x{{ end }}{{ end }}{{ template "a" }}`,
		"Parentheses":     "{{ " + strings.Repeat("(", 9000) + "1" + strings.Repeat(")", 9000) + " }}",
		"TooLong":         strings.Repeat("a", tmpl.MaxSource+1),
		"NestedLoops":     strings.Repeat(`{{ range 100 }}`, 60) + nested.String(),
		"Newlines":        `{{ range 100 }}` + strings.Repeat("\n", 10000) + `{{ end }}`,
		"Doubling":        double + "{{ $x }}",
		"DoublingUnused":  double + "a=1",
		"Sharing":         share + "{{ $x }}",
		"SharingPrinted":  share + "{{ len (print $x) }}",
		"SharingCompared": share + "{{ has $x (list $x) }}",
		"SharingToJson":   share + "{{ len (toJson $x) }}",
		"PrintfWidth":     `{{ printf "%1000000d" 1 }}`,
		"PrintfWidths":    `{{ printf "` + strings.Repeat("%60000d", 1000) + `" }}`,
		"PrintfPrecision": `{{ printf "%.999999f" 1.5 }}`,
		"PrintfAgain":     `{{ $x := repeat 60000 "a" }}{{ printf "` + strings.Repeat("%[1]s", 1000) + `" $x }}`,
		"PrintfStar":      `{{ printf "%*d" 1000000 1 }}`,
		"Replace":         `{{ replace "" (repeat 60000 "a") (repeat 60000 "b") }}`,
		"RegexReplace":    `{{ regexReplaceAll "" (repeat 60000 "b") (repeat 60000 "a") }}`,
		"RegexBackrefs":   `{{ regexReplaceAll "(.*)" (repeat 60000 "b") (repeat 20000 "$1 ") }}`,
		"RegexProgram":    `{{ regexMatch "(.{1,1000}){1,1000}" "a" }}`,
		"RegexMany":       `{{ range $i := until 10000 }}{{ regexMatch (print "a" $i) "a" }}{{ end }}`,
		"RegexSubject":    `{{ $x := repeat 60000 "a" }}{{ range 10000 }}{{ regexMatch "(a*)*b" $x }}{{ end }}`,
		"SplitEmpty":      `{{ $x := repeat 60000 "a" }}{{ range 100 }}{{ $y := splitList "" $x }}{{ end }}`,
		"Quote":           `{{ $x := repeat 60000 "\x01" }}{{ range 1000 }}{{ $y := quote $x $x $x }}{{ end }}`,
		"Join":            `{{ join (repeat 60000 "a") (until 1000) }}`,
		"SortBig":         `{{ range 1000 }}{{ $y := sortAlpha (until 5000) }}{{ end }}`,
		"Labels":          `{{ range 257 }}a{{ . }}=1` + "\n" + `{{ end }}`,
		"NilIndex":        `{{ index nil 0 }}`,
		"MinIntDivision":  `{{ div 1 (sub 1 1) }}`,
	}
	for name, source := range bombs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			compiled, _ := tmpl.Compile(source, tmpl.Options{})
			var got map[string]string
			var err error
			if compiled != nil {
				got, err = compiled.Expand(nil, env{})
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > bound {
				t.Errorf("it took %d bytes, want at most %d", used, bound)
			}
			if compiled != nil && err == nil && name != "NilIndex" {
				t.Errorf("it was expanded to %d labels", len(got))
			}
		})
	}
}

func TestLeftOutFunctionsAreNotThere(t *testing.T) {
	there := map[string]bool{}
	for _, name := range tmpl.Functions() {
		there[name] = true
	}
	for _, group := range tmpl.LeftOutFunctions() {
		for _, name := range group.Names {
			if there[name] {
				t.Errorf("%s is available and said to be left out", name)
			}
		}
	}
}

func instance(attributes map[string]string) facts.Row {
	return facts.NewInstances([]map[string]string{attributes}).Row(0)
}

// pciDevices returns a typical template, with one line for each of 80 devices of a few kinds.
func pciDevices() (source string, data []match.FeatureElements) {
	devices := make([]map[string]string, 80)
	for i := range devices {
		devices[i] = map[string]string{
			"class": []string{"0300", "0200", "0106", "0604"}[i%4], "vendor": []string{"10de", "8086", "15b3"}[i%3],
			"device": "1db6", "subsystem_vendor": "10de", "subsystem_device": "1212", "sriov_totalvfs": "0",
		}
	}
	all := facts.NewInstances(devices)
	elements := make([]match.Element, all.Len())
	for i := range elements {
		elements[i].Instance = all.Row(i)
	}
	return "{{ range .pci.device }}x-{{ .class }}-{{ .vendor }}=present\n{{ end }}", []match.FeatureElements{{Feature: "pci.device", Elements: elements}}
}

func BenchmarkExpandPCIDevices(b *testing.B) {
	source, data := pciDevices()
	compiled, _ := tmpl.Compile(source, tmpl.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compiled.Expand(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	source, _ := pciDevices()
	b.ReportAllocs()
	for b.Loop() {
		tmpl.Compile(source, tmpl.Options{})
	}
}
