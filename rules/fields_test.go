package rules_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// readElsewhere lists the fields that this package does not read, and why.
var readElsewhere = map[string]string{
	"NodeFeatureRuleSpec.BasedOn":        "resolved by rules/compose before",
	"NodeFeatureRuleSpec.MinimumVersion": "checked by internal/assembly before",
	"NodeFeatureRuleSpec.RulesFrom":      "resolved by internal/assembly before",
}

// TestEveryFieldIsRead fails for a field of the API that no file of this package reads.
func TestEveryFieldIsRead(t *testing.T) {
	selected := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("lang/*/*.go") // the packages match, condition and action read their own fields
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, more...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				selected[s.Sel.Name] = true
			}
			return true
		})
	}
	for _, kind := range []reflect.Type{
		reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec](), reflect.TypeFor[nfdv1alpha1.Rule](), reflect.TypeFor[nfdv1alpha1.FeatureMatcherTerm](),
		reflect.TypeFor[nfdv1alpha1.MatchExpression](), reflect.TypeFor[nfdv1alpha1.Condition](), reflect.TypeFor[nfdv1alpha1.Action](),
	} {
		for i := range kind.NumField() {
			name := kind.Name() + "." + kind.Field(i).Name
			read, reason := selected[kind.Field(i).Name], readElsewhere[name]
			switch {
			case !read && reason == "":
				t.Errorf("nothing in this package reads %s: compile it, or say in readElsewhere who reads it", name)
			case read && reason != "":
				t.Errorf("%s is read here: delete it from readElsewhere (%s)", name, reason)
			}
		}
	}
}
