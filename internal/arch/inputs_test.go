package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// inputsByHand are the directories that may fill a rules.Input field by field, with the reason.
var inputsByHand = map[string]string{
	"rules/gather":                "makes inputs from stored objects and a policy",
	"internal/worker/customrules": "has what this machine discovered, which is not stored yet",
	"internal/doctest":            "has the facts of an example on a page",
	"test/twin":                   "is the reference that inputs are compared with",
}

// TestInputsAreMadeInOnePlace: two functions that make the input of rules from stored objects would give different answers sooner or later.
// A gather.Selection cannot be made elsewhere, because its fields are not exported.
func TestInputsAreMadeInOnePlace(t *testing.T) {
	root, found := filepath.Join("..", ".."), map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || path != root && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if fillsInput(file) {
			found[filepath.ToSlash(dir)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range found {
		if inputsByHand[dir] == "" {
			t.Errorf("%s fills a rules.Input: get it from internal/fleet/inputs or internal/fleet/offline", dir)
		}
	}
	for dir := range inputsByHand {
		if !found[dir] {
			t.Errorf("%s fills no rules.Input: remove it from the list", dir)
		}
	}
}

// fillsInput reports whether a file has a literal of rules.Input with fields.
func fillsInput(file *ast.File) (fills bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.CompositeLit); ok && len(literal.Elts) > 0 {
			of, ok := literal.Type.(*ast.SelectorExpr)
			fills = fills || ok && of.Sel.Name == "Input" && of.X.(*ast.Ident).Name == "rules"
		}
		return true
	})
	return fills
}
