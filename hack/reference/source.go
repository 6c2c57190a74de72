package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// source is the source code of a package.
type source struct {
	files []*ast.File
	set   *token.FileSet
}

func load(root, dir string) (*source, error) {
	s := &source{set: token.NewFileSet()}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
	}
	return s, nil
}

// limitsOf lists the packages with limits that can affect users, and the limits of each.
var limitsOf = []struct {
	dir   string
	names []string
}{
	{"rules", []string{"MaxRules", "MaxTerms", "MaxOutputs", "MaxPriority", "NodeBudget", "RuleBudget", "RequirementWork", "MaxSaid", "MaxTaints",
		"MaxLabels", "MaxAnnotations", "MaxResources", "MaxTaintTexts", "MaxNodeConditions", "MaxConditions", "MaxSize", "MaxClusterSize", "MaxRequirementSize"}},
	{"rules/lang/size", []string{"MaxProgram"}},
	{"rules/lang/match", []string{"MaxTerms", "MaxExpressions", "MaxValues", "MaxTextLength", "maxVersionLength", "MaxWork"}},
	{"rules/lang/expr", []string{"MaxText", "MaxNodes", "MaxExpressions", "MaxResult", "MaxItems", "maxValue", "maxDepth", "maxNumber", "maxFormat", "maxWidth", "maxShift"}},
	{"rules/lang/args", []string{"maxDepth"}},
	{"rules/lang/condition", []string{"maxRegex"}},
	{"rules/lang/action", []string{"maxReason"}},
	{"rules/lang/tmpl", []string{"MaxSource", "MaxOutput", "MaxLabels", "MaxSteps", "MaxDepth", "MaxCalls", "MaxBytes", "MaxPattern"}},
	{"rules/keys", []string{"MaxAnnotationValue", "MaxQuantity"}},
	{"rules/version", []string{"MaxNumbers"}},
	{"rules/compose", []string{"MaxDepth", "MaxDocuments", "MaxRules", "MaxWildcards", "MaxExcludes", "MaxResult", "MaxText", "MaxNodes", "MaxNesting"}},
	{"rules/review", []string{"maxFeatureBytes", "maxFeatures", "maxElements", "maxInstances", "maxInstanceAttributes", "maxFeatureLabels", "maxNameLen", "maxElementLen"}},
	{"webhook", []string{"maxWarnings", "maxErrors"}},
	{"internal/nodefeature", []string{"MaxForeign", "MaxForeignBytes", "MaxMissing", "MaxMissingBytes"}},
	{"discovery/publish", []string{"DefaultMaxBytes"}},
	{"discovery/local", []string{"MaxFileSize", "MaxFiles", "DefaultHookTimeout", "MaxHooksTime"}},
	{"discovery/custom", []string{"MaxFiles", "MaxFileSize"}},
}

// limits lists the limits with their reasons.
func (p *page) limits(root string) error {
	p.section("Limits", `Every limit is a constant in the code. The reason is its comment. They count, and never measure time: what works on one
machine works on all.`)
	p.table("limit", "value", "reason")
	for _, group := range limitsOf {
		s, err := load(root, group.dir)
		if err != nil {
			return err
		}
		values, comments := s.constants()
		for _, name := range group.names {
			if values[name] == "" || comments[name] == "" {
				return fmt.Errorf("%s: the constant %s is gone, or has no comment", group.dir, name)
			}
			p.row(code(group.dir+"."+name), values[name], comments[name])
		}
	}
	return nil
}

// constants returns the values of constants, and their comments: for a constant without a comment, that of its group.
func (s *source) constants() (values, comments map[string]string) {
	values, comments = map[string]string{}, map[string]string{}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	// Only constants are needed, so other unresolved identifiers do not matter.
	config := types.Config{Importer: few{}, Error: func(error) {}, IgnoreFuncBodies: true}
	_, _ = config.Check("p", s.set, s.files, info)
	for _, file := range s.files {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			last := "" // the comment of a constant can also apply to the following ones
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				if v.Doc.Text() != "" {
					last = v.Doc.Text()
				}
				for _, name := range v.Names {
					if c, ok := info.Defs[name].(*types.Const); ok {
						values[name.Name] = shown(c)
					}
					comments[name.Name] = reason(name.Name, v.Doc.Text(), v.Comment.Text(), group.Doc.Text(), last)
				}
			}
		}
	}
	return values, comments
}

// few imports what constants need from other packages. Packages of the standard library cannot be found by programs that were
// compiled with -trimpath.
type few struct{}

var fewSources = map[string]string{
	"time": "package time; type Duration int64; const (Second Duration = 1e9; Minute = 60 * Second; Hour = 60 * Minute)",
	"math": "package math; const MaxInt64 = 1<<63 - 1",
}

// Import implements types.Importer.
func (few) Import(path string) (*types.Package, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, fewSources[path], 0)
	if err != nil {
		return nil, fmt.Errorf("%s is not needed", path)
	}
	return (&types.Config{}).Check(path, set, []*ast.File{file}, nil)
}

// shown formats a constant for readers.
func shown(c *types.Const) string {
	if c.Val().Kind() != constant.Int {
		return c.Val().String()
	}
	n, _ := constant.Int64Val(c.Val())
	if strings.HasSuffix(c.Type().String(), "time.Duration") {
		return fmt.Sprintf("%d s", n/1e9)
	}
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return grouped(n) + fmt.Sprintf(" (%d Mi)", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return grouped(n) + fmt.Sprintf(" (%d Ki)", n>>10)
	}
	return grouped(n)
}

// grouped formats a number with thousands separators.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// reason returns the comment of a constant as a sentence for a table.
func reason(name string, comments ...string) string {
	for _, comment := range comments {
		if comment == "" {
			continue
		}
		text := strings.Join(strings.Fields(comment), " ")
		for _, prefix := range []string{" is ", " bounds "} {
			if rest, ok := strings.CutPrefix(text, name+prefix); ok {
				text = strings.TrimPrefix(prefix+rest, " is ")
			}
		}
		return strings.TrimSuffix(strings.TrimSpace(text), ".")
	}
	return ""
}

// fieldsOf are the types whose fields are listed, each with its path in an object.
var fieldsOf = []struct{ kind, title string }{
	{"NodeFeatureRuleSpec", "spec"},
	{"Rule", "spec.rules[]"},
	{"FeatureMatcherTerm", "matchFeatures[], matchAny[].matchFeatures[]"},
	{"MatchExpression", "matchExpressions[KEY], matchName"},
	{"Condition", "conditions[]"},
	{"Action", "actions[]"},
	{"Base", "spec.basedOn[]"},
}

// fields lists the fields of rules with their comments.
func (p *page) fields(root string) error {
	s, err := load(root, "api/nfd/v1alpha1")
	if err != nil {
		return err
	}
	p.section("Fields", "`kubectl explain nodefeaturerule.spec` shows the same.")
	for _, group := range fieldsOf {
		structure := s.structure(group.kind)
		if structure == nil {
			return fmt.Errorf("api/nfd/v1alpha1 has no type %s", group.kind)
		}
		fmt.Fprintf(p, "\n### %s\n", group.title)
		p.table("field", "type", "meaning")
		for _, field := range structure.Fields.List {
			name := jsonName(field)
			p.row(code(name), code(typeName(field.Type)), sentence(field))
		}
	}
	return nil
}

func (s *source) structure(name string) *ast.StructType {
	for _, file := range s.files {
		if object := file.Scope.Lookup(name); object != nil {
			if spec, ok := object.Decl.(*ast.TypeSpec); ok {
				if structure, ok := spec.Type.(*ast.StructType); ok {
					return structure
				}
			}
		}
	}
	return nil
}

func jsonName(field *ast.Field) string {
	_, tag, _ := strings.Cut(field.Tag.Value, `json:"`)
	name, _, _ := strings.Cut(tag, `"`)
	name, _, _ = strings.Cut(name, ",")
	return name
}

func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.ArrayType:
		return "[]" + typeName(t.Elt)
	case *ast.MapType:
		return "map[" + typeName(t.Key) + "]" + typeName(t.Value)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		switch t.Name {
		case "JSON":
			return "any"
		case "int32":
			return "integer"
		}
		return t.Name
	}
	return "?"
}

// sentence returns the comment of a field without its markers and without the name at its beginning.
func sentence(field *ast.Field) string {
	var lines []string
	for line := range strings.Lines(field.Doc.Text()) {
		if !strings.HasPrefix(line, "+") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	text := strings.TrimSpace(strings.Join(lines, " "))
	return strings.TrimPrefix(text, field.Names[0].Name+" is ")
}
