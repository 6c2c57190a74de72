package tmpl_test

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/lang/tmpl"
)

func TestNamesThatATemplateShows(t *testing.T) {
	for name, tc := range map[string]struct {
		source  string
		yes, no []string // a template that may write any name has neither
	}{
		"Literal":      {"a=1\n b = 2\nc", []string{"a", "b ", "c"}, []string{"b", "", "d", "a1"}},
		"Value":        {"a={{.x.y}}b=2\nc=3", []string{"a", "c"}, []string{"b", "y"}},
		"Prefix":       {"{{range .x.y}}dev-{{.Name}}={{.Value}}\n{{end}}", []string{"dev-1", "dev-"}, []string{"dev", "x"}},
		"Whole":        {"{{.x.y}}=1", nil, nil},
		"IndentedName": {"  {{.x.y}}=1", nil, nil},
		"String":       {`{{"a"}}b=1{{"\n"}}c=1`, []string{"ab", "c"}, []string{"b", "a"}},
		"Printf":       {`x={{printf "1\ny=%s" .x}}`, nil, nil},
		"Variable":     {`{{$v := "1\nb=2"}}a={{$v}}`, nil, nil},
		"Call":         {`{{define "t"}}b=1{{end}}{{template "t"}}`, nil, nil},
		"Definition":   {`{{define "t"}}b=1{{end}}a=1`, []string{"a"}, []string{"b"}},
		"Either":       {"{{if .x}}a{{else}}b{{end}}-c=1", []string{"a-c", "b-c"}, []string{"a", "-c"}},
		"MayBeEmpty":   {"{{with .x}}a{{end}}b=1\n", []string{"ab", "b"}, []string{"a"}},
		"Joined":       {"{{range .x.y}}a{{.}}{{end}}=1", []string{"a", "a1"}, []string{"", "b"}},
		"Repeated":     {"{{range .x.y}}a{{end}}=1", nil, nil},
		"Break":        {"{{range .x.y}}{{if .z}}a{{break}}{{end}}b=1\n{{end}}c=1", []string{"ac", "b", "c"}, []string{"a", "bc"}},
		"Continue":     {"{{range .x.y}}{{if .z}}{{continue}}{{end}}b=1\n{{else}}d{{end}}c=1", []string{"b", "c", "dc"}, []string{"d"}},
		"Trimmed":      {"{{- range .x.y -}} a-{{- .Name -}} =1\n{{end}}", []string{"a-1"}, []string{"a"}},
		"TooMany":      {strings.Repeat("{{if .x}}a{{end}}", 100) + "=1", nil, nil},
		"TooLong":      {strings.Repeat("a", 1000) + "=1\nb=2", []string{"b"}, []string{"a"}},
		"Empty":        {"", nil, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, problems := tmpl.Compile(tc.source, tmpl.Options{})
			if compiled == nil {
				t.Fatal(problems)
			}
			if any := tc.yes == nil && tc.no == nil; compiled.WritesAny() != any || any && !compiled.MayWrite("x") {
				t.Fatalf("it may write any name: %t", compiled.WritesAny())
			}
			for _, s := range tc.yes {
				if !compiled.MayWrite(s) {
					t.Errorf("it may write %q", s)
				}
			}
			for _, s := range tc.no {
				if compiled.MayWrite(s) {
					t.Errorf("it cannot write %q", s)
				}
			}
		})
	}
}
