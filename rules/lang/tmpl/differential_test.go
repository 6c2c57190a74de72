package tmpl_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// standardData converts sample to the form that text/template needs.
func standardData(terms []match.FeatureElements) map[string]map[string][]map[string]string {
	out := map[string]map[string][]map[string]string{}
	for _, term := range terms {
		domain, name, ok := strings.Cut(term.Feature, ".")
		if !ok {
			domain = strings.ToLower(domain)
		}
		for _, key := range [][2]string{{domain, name}, {strings.ToLower(domain), strings.ToLower(name)}} {
			if out[key[0]] == nil {
				out[key[0]] = map[string][]map[string]string{}
			}
			var elements []map[string]string
			for _, e := range term.Elements {
				m := e.Instance.Map()
				if m == nil {
					m = map[string]string{"Name": e.Name}
					if e.HasValue {
						m["Value"] = e.Value
					}
				}
				elements = append(elements, m)
			}
			out[key[0]][key[1]] = elements
		}
	}
	return out
}

// agree compares the output of a template with that of text/template. It returns false for a template that is rejected only here:
// some run-time errors of text/template are compile errors here.
func agree(t *testing.T, source string) bool {
	t.Helper()
	compiled, problems := tmpl.Compile(source, tmpl.Options{})
	standard, err := template.New("main").Option("missingkey=error").Parse(source)
	var want strings.Builder
	if err == nil {
		err = standard.Execute(&want, standardData(sample()))
	}
	if compiled == nil {
		if err == nil {
			t.Logf("%s\ndoes not compile: %v\ntext/template gives %q", source, problems, want.String())
		}
		return err != nil
	}
	got, gotErr := compiled.Expand(sample(), nil)
	if (gotErr != nil) != (err != nil) {
		t.Errorf("%s\ngot error %v, text/template %v", source, gotErr, err)
		return true
	}
	if err == nil {
		if diff := cmp.Diff(labels(want.String()), got); diff != "" {
			t.Errorf("%s (-text/template +got):\n%s", source, diff)
		}
	}
	return true
}

// labels parses output as NFD does, but accepts lines without =.
func labels(out string) map[string]string {
	var all map[string]string
	for _, line := range strings.Split(out, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			value = "true"
		}
		all[key] = value
	}
	return all
}

func TestAgreesWithTextTemplate(t *testing.T) {
	for _, source := range []string{
		`{{ range $i, $d := .pci.device }}{{ $i }}-{{ $d.class }}={{ len $d }}` + "\n" + `{{ else }}none=1{{ end }}`,
		`{{ range $d := .cpu.cpuid }}{{ $d.Name }}=1` + "\n" + `{{ end }}`,
		`{{ range $k, $v := index .pci.device 0 }}{{ $k }}={{ $v }}` + "\n" + `{{ end }}`,
		`{{ range $domain, $features := . }}{{ range $f, $e := $features }}{{ $domain }}-{{ $f }}={{ len $e }}` + "\n" + `{{ end }}{{ end }}`,
		`{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $x := 3 }}{{ end }}x={{ $x }}`,
		`{{ with $x := .cpu.cpuid }}n={{ len $x }}{{ end }}`, `{{ with .nosuch }}{{ end }}`, `{{ with index . "nosuch" }}a{{ else }}b=1{{ end }}`,
		`{{ with "" }}a{{ else with "x" }}b={{ . }}{{ end }}`, `{{ if 0 }}a{{ else if 0.0 }}b{{ else if "" }}c{{ else }}d=1{{ end }}`,
		`{{ define "d" }}{{ . }}={{ $ }}` + "\n" + `{{ end }}{{ range .cpu.cpuid }}{{ template "d" .Name }}{{ end }}`,
		`{{ block "b" . }}x={{ len .pci.device }}{{ end }}`, `{{- /* comment */ -}} a = {{- " b" -}} `, `a={{ "x" | printf "%s-%s" "y" }}`,
		`a={{ printf "%05.1f|%x|%q|%v|%t|%d" 3.14159 "hi" "q" nil true 7 }}`, `a={{ print 1 2 "a" "b" 3 }}`, `a={{ println "a" 1 }}`,
		`a={{ and 1 0 }}{{ or 0 "x" }}{{ and true "y" }}{{ not 1 }}`, `a={{ or (eq 1 1) (index nil 1) }}`, `a={{ and (eq 1 2) (index nil 1) }}`,
		`a={{ eq 1 2 3 1 }}{{ ne "a" "b" }}{{ lt 1 2 }}{{ le 2 2 }}{{ gt "b" "a" }}{{ ge 1.5 1.5 }}`, `{{ eq 1 "1" }}`, `{{ eq 1 1.0 }}`, `{{ lt true false }}`,
		`{{ eq .cpu.cpuid .cpu.cpuid }}`, `a={{ eq nil nil }}`, `a={{ eq .cpu nil }}`, `a={{ len "héllo" }}{{ slice "hello" 1 3 }}{{ index "abc" 1 }}`, `{{ slice "abc" 2 1 }}`, `{{ slice "abc" 4 }}`,
		`{{ index .pci.device 5 }}`, `{{ index .pci.device "a" }}`, `a={{ index .pci "nosuch" }}`, `a={{ index . "x" "y" }}`, `{{ index . "x" "y" 0 }}`, `{{ .pci.device.class }}`, `{{ "a".b }}`, `{{ ("a").b }}`,
		`a={{ (index .pci.device 0).class }}`, `a={{ .cpu.cpuid }}`, `a={{ index .pci.device 1 }}`, `{{ nil }}`, `a={{ true }}{{ 1.5 }}{{ 0x10 }}{{ 'a' }}{{ 1e3 }}{{ -3 }}{{ 1_000 }}`, `{{ 99999999999999999999 }}`,
		`{{ range 3 }}{{ . }}={{ . }}` + "\n" + `{{ end }}`, `{{ range $i := 3 }}{{ $i }}=1` + "\n" + `{{ end }}`, `{{ range $i, $j := 3 }}{{ end }}`, `{{ range "abc" }}{{ end }}`, `{{ range nil }}{{ end }}`, `{{ range -1 }}{{ else }}e=1{{ end }}`, `{{ range 1.5 }}{{ end }}`,
		`{{ range .pci.device }}{{ if eq .class "0200" }}{{ break }}{{ end }}{{ range 3 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}=1` + "\n" + `{{ end }}{{ end }}`,
		`{{ $x := .pci }}{{ range $x.device }}{{ .vendor }}=1` + "\n" + `{{ end }}`, `{{ $.pci.device | len | printf "n=%d" }}`, `{{ $v := 0 }}{{ range $v = .cpu.cpuid }}{{ end }}{{ $v.Name }}=1`,
		`{{ template "x" }}{{ define "x" }}a={{ . }}{{ end }}`, `{{ define "x" }}{{ .y }}{{ end }}{{ template "x" }}`, `a={{ html "<'&>" }}{{ urlquery "a b&" }}`, `{{ len 3 }}`, `{{ len nil }}`, `{{ not }}`, `{{ and }}`,
		`{{ if not .cpu.nosuch }}{{ end }}`, `a={{ with $y := 5 }}{{ $y }}{{ end }}`, `{{ $y }}`, `a={{ (1) }}{{ ((2 | print)) }}`, `a={{ 1 | 2 }}`, `{{ .cpu 1 }}`, `{{ .system.osrelease }}`, `{{ .a.b }}`, "a={{ `raw` }}",
		`{{ range . }}{{ range . }}{{ range . }}{{ . }}{{ end }}{{ end }}{{ end }}`, `a={{ . }}`, `{{ break }}`, `a={{ printf "%d" "x" }}`, `a={{ printf "%s" 1 }}`, `a={{ printf "%v %v" .cpu.cpuid true }}`, `a={{ eq "a" nil }}`,
	} {
		t.Run(source, func(t *testing.T) {
			if !agree(t, source) {
				t.Error("refused here, and works with text/template")
			}
		})
	}
}

// TestRandomTemplatesAgreeWithTextTemplate builds random templates from parts that both implementations support.
func TestRandomTemplatesAgreeWithTextTemplate(t *testing.T) {
	const count = 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range count {
		g := generator{rng: rng}
		g.block(3)
		if !agree(t, g.out.String()) {
			refused++
		}
		if t.Failed() {
			return
		}
	}
	if refused > count/10 {
		t.Errorf("%d of %d templates are rejected here and work with text/template", refused, count)
	}
}

type generator struct {
	rng *rand.Rand
	out strings.Builder
}

func (g *generator) pick(list ...string) string { return list[g.rng.IntN(len(list))] }

func (g *generator) expr(depth int) string {
	if depth == 0 {
		return g.pick(".", "$", ".pci.device", ".cpu.cpuid", "1", "0", "-2", "1.5", `""`, `"a"`, `"Name"`, "true", "false", "nil", "$v", ".Name", ".class", "$v.Name", `.system.osrelease`)
	}
	a, b := g.expr(depth-1), g.expr(depth-1)
	switch g.rng.IntN(8) {
	case 0:
		return "(" + g.pick("len", "not", "print", "index", "html", "slice") + " " + a + ")"
	case 1:
		return "(" + g.pick("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "index", "print", `printf "%v/%v"`, "slice") + " " + a + " " + b + ")"
	case 2:
		return "(" + a + " | " + g.pick("len", "not", "print", "printf \"%v\"", "eq 1", "index", "and 1", "or 0", "index $") + ")"
	}
	return a
}

func (g *generator) block(depth int) {
	for range 1 + g.rng.IntN(3) {
		e := g.expr(g.rng.IntN(3))
		switch g.rng.IntN(8) {
		case 0, 1:
			g.out.WriteString(g.pick("a", "b-", "=", "\n", "x=", " "))
		case 2, 3:
			g.out.WriteString("{{ " + e + " }}")
		case 4:
			g.out.WriteString("{{ $v " + g.pick(":=", ":=", "=") + " " + e + " }}")
		default:
			if depth == 0 {
				continue
			}
			kind := g.pick("if", "with", "range", "range", "range $i, $v :=", "with $v :=")
			g.out.WriteString("{{ " + kind + " " + e + " }}")
			g.block(depth - 1)
			if g.rng.IntN(3) == 0 {
				g.out.WriteString("{{ else }}")
				g.block(depth - 1)
			}
			g.out.WriteString("{{ end }}")
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{`{{ range .pci.device }}x-{{ .class }}=1` + "\n{{ end }}", `{{ repeat 3 "x" }}`, `{{ printf "%[1]s%5d" "a" 3 }}`,
		`{{ regexReplaceAll "a" "b" "$1" }}`, `{{ define "a" }}{{ end }}{{ template "a" list 1 2 }}`, `{{ if 1 }}{{ else if 2 }}{{ end }}`, `{{ "\"}}" }}`,
		`{{ semverCompare ">=1.2" "1.3" }}`, `{{ slice (list 1 2) 0 1 }}`, `{{ seq 1 2 3 }}`, `{{ dict "a" 1 | toJson }}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		compiled, problems := tmpl.Compile(source, tmpl.Options{})
		if compiled == nil {
			if len(problems) == 0 {
				t.Fatal("no template and no problem")
			}
			return
		}
		first, err := compiled.Expand(sample(), env{})
		second, err2 := compiled.Expand(sample(), env{})
		if diff := cmp.Diff(first, second); diff != "" || (err == nil) != (err2 == nil) {
			t.Errorf("two expansions differ: %v, %v\n%s", err, err2, diff)
		}
	})
}

// BenchmarkStandardLibrary runs BenchmarkExpandPCIDevices with text/template and parses the template for each expansion, as NFD
// does. NFD also builds the map of 208 functions each time.
func BenchmarkStandardLibrary(b *testing.B) {
	source, terms := pciDevices()
	data := standardData(terms)
	b.ReportAllocs()
	for b.Loop() {
		t, err := template.New("").Option("missingkey=error").Parse(source)
		if err != nil {
			b.Fatal(err)
		}
		var out strings.Builder
		if err := t.Execute(&out, data); err != nil {
			b.Fatal(err)
		}
		labels(out.String())
	}
}
