// Package check reviews the documents in files and reports problems with positions.
package check

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// Checker reviews documents that belong together: it looks up the templates of a rule among the documents, in files next to them,
// and among the templates of Known. It is safe for concurrent use.
type Checker struct {
	known     review.Known
	templates map[string]*manifest.Document
	// Schema also validates documents against the CRDs, as the API server does, if the review has found no error.
	Schema bool
	// Files lets bases be files, as for commands that evaluate rules without a cluster.
	Files bool
	// Sealed prevents bases from being read from files. It is for documents that are not the user's own files.
	Sealed bool
}

// New returns a Checker that looks up templates among the documents in files.
func New(known review.Known, files ...*manifest.File) *Checker {
	c := &Checker{known: known, templates: map[string]*manifest.Document{}}
	for _, f := range files {
		for _, d := range f.Documents {
			if d.Kind == manifest.KindTemplate {
				c.templates[d.Name] = d
			}
		}
	}
	return c
}

// File returns all findings of a file, ordered by line.
func (c *Checker) File(f *manifest.File) []report.Finding {
	var problems []manifest.Problem
	if p := programOfFile(f); p != nil {
		problems = c.configuration(p, f, nil)
	} else {
		found := make([][]manifest.Problem, len(f.Documents))
		input.Each(len(f.Documents), func(i int) { found[i], _ = c.Document(f.Documents[i]) })
		problems = slices.Concat(f.Problems, slices.Concat(found...), twice(f))
	}
	manifest.Sort(problems)
	out := make([]report.Finding, len(problems))
	for i, p := range problems {
		out[i] = report.Finding{File: f.Name, Problem: p}
	}
	return out
}

// Document returns all findings of a document and the review of its object. Objects of other kinds have no findings, unless their
// pods require or prefer features with annotations.
func (c *Checker) Document(d *manifest.Document) (problems []manifest.Problem, found review.Findings) {
	if review.IsCustomRules(d) {
		problems, _ = review.CustomRules(d, d.Root, "", c.known)
		return problems, found
	}
	if d.Kind == "ConfigMap" {
		return c.inConfigMap(d), found
	}
	if pods := review.ReadPods(d); pods != nil {
		found = review.Review(pods, c.known)
		return review.Problems(d, found), found
	}
	if !d.Known() {
		return nil, found
	}
	known := c.known
	known.Templates = c.lookup(filepath.Dir(d.File().Name))
	d.FileBases = c.Files && !c.Sealed
	if d.FileBases {
		problems = embedTemplates(d)
	}
	_, shape, found := review.Document(d, known)
	problems = append(problems, d.CheckType()...)
	problems = append(problems, shape...)
	problems = append(problems, review.Problems(d, found)...)
	if d.BasedOnFiles() {
		problems = append(problems, d.Problem(manifest.Warning, "base", "spec.basedOn",
			"the cluster rejects bases in files: apply the output of assay template copy --embed-all FILE"))
	}
	if c.Schema && !hasErrors(problems) {
		problems = append(problems, schemaProblems(d)...)
	}
	return problems, found
}

// Compile reviews a document with rules and returns the compiled rules of the object, including those of its bases.
func (c *Checker) Compile(d *manifest.Document) ([]manifest.Problem, *rules.RuleSet) {
	problems, found := c.Document(d)
	return problems, found.Set
}

func hasErrors(list []manifest.Problem) bool {
	for _, p := range list {
		if p.Severity == manifest.Error {
			return true
		}
	}
	return false
}

// twice reports objects in one file that have the same name: the last one would replace the others.
func twice(f *manifest.File) []manifest.Problem {
	type key struct{ kind, namespace, name string }
	seen := map[key]*manifest.Document{}
	var out []manifest.Problem
	for _, d := range f.Documents {
		if !d.Known() || d.Name == "" {
			continue
		}
		k := key{d.Kind, "", d.Name}
		if ns := d.Child("metadata", "namespace"); ns != nil {
			k.namespace = ns.Value
		}
		if before, ok := seen[k]; ok {
			out = append(out, d.Problem(manifest.Error, "duplicate-object", "metadata.name",
				"there is a "+d.Title()+" on line "+strconv.Itoa(before.Position().Line)+" already; when both are applied, the later one replaces the other"))
			continue
		}
		seen[k] = d
	}
	return out
}

// lookup looks up templates among the documents, among the known templates, and in files next to the document.
func (c *Checker) lookup(dir string) compose.Lookup {
	return func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		bare := strings.TrimPrefix(name, "cluster:")
		if d := c.templates[bare]; d != nil {
			object, _ := review.Read(d)
			return review.Spec(object), nil
		}
		if c.known.Templates != nil {
			if spec, err := c.known.Templates(bare); spec != nil || err != nil {
				return spec, err
			}
		}
		if c.Sealed || !strings.ContainsAny(name, "./") || strings.Contains(name, "://") {
			return nil, nil
		}
		return c.fromFile(dir, name)
	}
}

// fromFile returns the rules of a base in a file, whose path may be relative to a directory. Files that it is based on are relative to its own.
func (c *Checker) fromFile(dir, path string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	data, err := input.Read(path, nil)
	switch {
	case err != nil && c.Files:
		return nil, err
	case err != nil:
		return nil, nil //nolint:nilerr // a missing base is reported as such
	}
	f := manifest.Parse(path, data)
	if len(f.Problems) > 0 {
		return nil, fmt.Errorf("%s:%w", path, f.Problems[0])
	}
	for _, d := range f.Documents {
		if d.Kind != manifest.KindTemplate && d.Kind != manifest.KindRule {
			continue
		}
		if d.FileBases = c.Files; d.FileBases {
			if wrong := embedTemplates(d); hasErrors(wrong) {
				return nil, fmt.Errorf("%s:%w", path, wrong[0])
			}
		}
		object, shape := review.Read(d)
		if hasErrors(shape) {
			return nil, fmt.Errorf("%s:%w", path, shape[0])
		}
		spec := review.Spec(object)
		for i := range spec.BasedOn {
			if base := &spec.BasedOn[i]; manifest.Locator(base.Name) && !filepath.IsAbs(base.Name) {
				base.Name = filepath.Join(filepath.Dir(path), base.Name)
			}
		}
		return spec, nil
	}
	return nil, fmt.Errorf("%s: no NodeFeatureRule or NodeFeatureRuleTemplate found", path)
}
