package tmpl_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/lang/tmpl"
)

// textBehind matches text behind an action.
var textBehind = regexp.MustCompile(`\}\}[^{}\s][^{}]*`)

// checkShared compares a template that shares the code of a template with other text, and that of itself, with one that is compiled
// alone.
func checkShared(t *testing.T, source string, opt tmpl.Options) {
	t.Helper()
	want := describe(tmpl.Compile(source, opt))
	opt.Shapes = &tmpl.Shapes{}
	tmpl.Compile(textBehind.ReplaceAllString(source, "$0 x\n\ny=1"), opt)
	for range 2 {
		if diff := cmp.Diff(want, describe(tmpl.Compile(source, opt))); diff != "" {
			t.Errorf("%s (-alone +shared):\n%s", source, diff)
		}
	}
}

// describe returns everything that is visible of a compiled template.
func describe(compiled *tmpl.Template, problems []tmpl.Diagnostic) []string {
	out := []string{fmt.Sprint(problems)}
	if compiled != nil {
		values, err := compiled.Expand(sample(), env{})
		out = append(out, fmt.Sprint(compiled.DataPaths()), fmt.Sprint(values, err), compiled.Source(),
			fmt.Sprint(compiled.ReadsNode(), compiled.ReadsVars(), compiled.WritesAny(), compiled.MayWrite("a"), compiled.MayWrite("x")))
	}
	return out
}

func TestTemplatesThatShareCode(t *testing.T) {
	for _, source := range []string{
		"", "a=1", "{{.x}}", " a=1\n{{- if .a.b -}} b=2 {{- else -}} c\n {{- end -}} \n", "{{- -}}", "a={{", "a={{ \"}}\" }}b", "a={{ `}}` }}b{{ '}' }}",
		"a={{/* b */}}c", "{{- /* b */ -}} a=1", `{{define "a"}}b{{end}}a={{template "a"}}`, `{{block "a" .}} {{end}}b=1`, "a{{{.x.y}}", "{{.x.y}}}b=1",
		"bare\n{{range .pci.device}}{{.class}}\nbare {{.nosuch}}\n{{end}}", "\x00={{.pci.device}}\x00", `{{range .pci.device}}{{regexMatch "^0" .class}}=1{{end}}`,
		"\n\n {{- .a.b}}={{.c.d}}\n{{.a.b}}=1", "{{if .a.b}}\n\nx={{index .pci.device 7}}{{end}}", "a=1{{nosuch}}\nb", "{{range .pci.device}}{{break}}a{{end}}b=1",
		strings.Repeat("a={{.cpu.cpuid}}\n", 1000),
	} {
		checkShared(t, source, tmpl.Options{})
		checkShared(t, source, tmpl.Options{Strict: true})
	}
}

// TestACatalogSharesCode: to compile templates that differ in their text takes a fraction of the memory.
func TestACatalogSharesCode(t *testing.T) {
	source := func(i int) string { return fmt.Sprintf("{{range .pci.device}}d%d-{{.device}}=true\n{{end}}", i) }
	shapes, n := &tmpl.Shapes{}, 0
	alone := testing.AllocsPerRun(10, func() { n++; tmpl.Compile(source(n), tmpl.Options{}) })
	shared := testing.AllocsPerRun(10, func() { n++; tmpl.Compile(source(n), tmpl.Options{Shapes: shapes}) })
	if shared > alone/3 {
		t.Errorf("%v allocations with other templates, %v alone", shared, alone)
	}
}
