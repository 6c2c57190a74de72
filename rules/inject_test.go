package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestAFeatureIsNoPartOfATemplate publishes values with line breaks, and reads them in every place where a template can read
// values: a value must not add lines to the template's output.
func TestAFeatureIsNoPartOfATemplate(t *testing.T) {
	const evil = "1\nevil=true\nkubernetes.io/hostname=x\r\nfeature.node.kubernetes.io/evil=true\n"
	for name, template := range map[string]string{
		"Field":          `{{range .a.b}}x={{.Value}}{{"\n"}}{{end}}`,
		"FieldAlone":     `x={{range .a.b}}{{.Value}}{{end}}`,
		"Name":           `{{range .a.b}}{{.Name}}=x{{"\n"}}{{end}}`,
		"Instance":       `{{range .c.d}}x={{.serial}}{{"\n"}}{{end}}`,
		"Index":          `x={{(index .c.d 0).serial}}`,
		"Function":       `{{range .c.d}}x={{.serial | trim | lower}}{{"\n"}}{{end}}`,
		"Printf":         `{{range .c.d}}{{printf "x=%s\n" .serial}}{{end}}`,
		"Whole":          `{{range .c.d}}x={{.}}{{"\n"}}{{end}}`,
		"WholePrinted":   `x={{printf "%v" .c.d}}`,
		"Keys":           `{{range .c.d}}{{range keys .}}{{.}}=x{{"\n"}}{{end}}{{end}}`,
		"KeysOfRange":    `{{range .c.d}}{{range $key, $value := .}}{{$key}}={{$value}}{{"\n"}}{{end}}{{end}}`,
		"Values":         `{{range .c.d}}{{range values .}}x={{.}}{{"\n"}}{{end}}{{end}}`,
		"Omit":           `{{range .c.d}}{{range $key, $value := omit . "z"}}{{$key}}={{$value}}{{"\n"}}{{end}}{{end}}`,
		"ToJSON":         `{{range .c.d}}x={{toJson .}}{{"\n"}}{{end}}`,
		"Variable":       `{{range .a.b}}x={{var "v"}}{{"\n"}}{{end}}`,
		"SplitAndJoined": `x={{range .a.b}}{{splitList "\n" .Value | join "-"}}{{end}}`,
	} {
		t.Run(name, func(t *testing.T) {
			set := compileSpec(t, "r", `{rules: [{name: v, vars: {v: "{@a.b.s}"}}, {name: x, labelsTemplate: '`+template+`', varsTemplate: '`+template+
				`', matchFeatures: [{feature: a.b, matchName: {op: Exists}}, {feature: c.d, matchName: {op: Exists}}]}]}`)
			in := rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(map[string]facts.Feature{
				"a.b": {Attributes: facts.NewAttributes(map[string]string{"s": evil, evil: "y"})},
				"c.d": {Instances: facts.NewInstances([]map[string]string{{"serial": evil, evil: "y"}})},
			}, nil)}
			o := rules.Link(rules.Options{}, set).Eval(in)
			for key := range o.Labels() {
				if strings.Contains(key, "evil") || strings.Contains(key, "hostname") {
					t.Errorf("label %q was made up", key)
				}
			}
			for key := range o.Vars() {
				if key == "evil" {
					t.Errorf("variable %q was made up", key)
				}
			}
		})
	}
}

// TestABadLineCostsNoOther has a template that writes an invalid label between valid ones.
func TestABadLineCostsNoOther(t *testing.T) {
	set := compileSpec(t, "r", `{rules: [{name: x, labelsTemplate: "a=1\nno equals sign\nwith space=1\ncontrol\u0007=1\nb=x y\nkubernetes.io/hostname=x\nz=2\r\n\n", matchFeatures: [{feature: a.b}]}]}`)
	in := rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("x")}}, nil)}
	o := rules.Link(rules.Options{}, set).Eval(in)
	want := map[string]string{"feature.node.kubernetes.io/a": "1", "feature.node.kubernetes.io/z": "2"}
	if diff := cmp.Diff(want, o.Labels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	for _, name := range []string{"no equals sign", "with space", "control", "b ", "hostname"} {
		if got := complaints(o); !strings.Contains(got, name) {
			t.Errorf("nothing is said about %q: %s", name, got)
		}
	}
}
