// Package docs_test executes the examples of the documentation; see internal/doctest for how a page says what is what.
package docs_test

import (
	"flag"
	"io"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/template"
	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

var update = flag.Bool("update", false, "write what comes out into the pages; read the diff")

// pages are the pages that hold examples, and how many of them at least: a page whose fences say nothing would always pass.
var pages = map[string]int{
	"../README.md":       1,
	"composition.md":     9,
	"recipes.md":         11,
	"rule-language.md":   40,
	"rules.md":           8,
	"troubleshooting.md": 1,
}

func TestExamples(t *testing.T) {
	for file, least := range pages {
		t.Run(file, func(t *testing.T) {
			page, err := doctest.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			runner := doctest.Runner{Dir: t.TempDir(), Command: assay(t)}
			examples, problems := runner.Run(page)
			if *update {
				if err := page.Update(); err != nil {
					t.Fatal(err)
				}
			}
			for _, problem := range problems {
				t.Error(problem)
			}
			if examples < least {
				t.Errorf("%d examples were executed, want at least %d", examples, least)
			}
		})
	}
}

// TestRecipesAreObjects: nine of ten rules of recipes.md were lists, which kubectl apply rejects.
func TestRecipesAreObjects(t *testing.T) {
	page, err := doctest.Read("recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, block := range page.Blocks {
		if block.Kind != "rule" {
			continue
		}
		file := manifest.Parse(page.At(block), []byte(block.Text))
		problems := file.Problems
		for _, d := range file.Documents {
			if d.Kind != manifest.KindRule || names[d.Name] {
				t.Errorf("%s: %s %q, want a NodeFeatureRule with a name of its own", page.At(block), d.Kind, d.Name)
			}
			names[d.Name] = true
			_, shape, found := review.Document(d, review.Known{})
			problems = append(append(problems, shape...), review.Problems(d, found)...)
		}
		if len(file.Documents) == 0 || len(problems) > 0 {
			t.Errorf("%s: %d objects, problems %v", page.At(block), len(file.Documents), problems)
		}
	}
	if len(names) < pages["recipes.md"] {
		t.Errorf("%d rules were reviewed, want at least %d", len(names), pages["recipes.md"])
	}
}

// assay runs the commands that need no cluster.
func assay(t *testing.T) func(string, []string, io.Writer) error {
	return func(dir string, args []string, out io.Writer) error {
		before, err := os.Getwd()
		if err != nil {
			return err
		}
		t.Chdir(dir)
		defer func() { _ = os.Chdir(before) }()
		cmd := template.NewCommandWith(template.Deps{})
		cmd.SetArgs(args[1:])
		cmd.SetOut(out)
		cmd.SetErr(out)
		cmd.SilenceErrors = true
		return cmd.Execute()
	}
}

// TestTrapsOfYAML holds the table of that name in rule-language.md.
func TestTrapsOfYAML(t *testing.T) {
	for text, want := range map[string]string{
		`rack: {n1}`:        `{"rack":{"n1":null}}`,
		`rack: {n1}-a`:      "",
		`value: @a.b.c`:     "",
		`op: !eq`:           `{"op":""}`,
		`op: ! eq`:          `{"op":"eq"}`,
		`y: {op: Exists}`:   `{"true":{"op":"Exists"}}`,
		`on: {op: Exists}`:  `{"true":{"op":"Exists"}}`,
		`no: {op: Exists}`:  `{"false":{"op":"Exists"}}`,
		`"y": {op: Exists}`: `{"y":{"op":"Exists"}}`,
		`value: [5]`:        `{"value":[5]}`,
		`value: [0200]`:     `{"value":[128]}`,
		`value: [10e2]`:     `{"value":[1000]}`,
	} {
		got, err := yaml.YAMLToJSON([]byte(text))
		if (err != nil) != (want == "") || string(got) != want {
			t.Errorf("%s is read as %s, %v; the page says %s", text, got, err, want)
		}
	}
}
