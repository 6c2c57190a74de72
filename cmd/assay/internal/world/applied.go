package world

import (
	"slices"

	"github.com/spf13/cobra"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// Applied are the rules of the cluster after files are applied.
type Applied struct {
	Objects []nfdv1alpha1.NodeFeatureRule
	Custom  []*rules.RuleSet // custom rules of the worker, in the files
}

// AppliedProgram compiles rules, and prints which of them are left out.
func (w *World) AppliedProgram(cmd *cobra.Command, next *Applied) *rules.Program {
	program, broken := w.Program(cmd.Context(), next.Objects)
	Note(cmd, broken)
	if len(next.Custom) == 0 {
		return program
	}
	return rules.Link(w.Limits, slices.Concat(program.Sets(), next.Custom)...)
}

// Applied returns the rules of the world without those to remove, and with those in files added or replaced.
func (w *World) Applied(cmd *cobra.Command, files, remove []string) (*Applied, error) {
	next := slices.Clone(w.Rules)
	var known []string
	for i := range w.Rules {
		known = append(known, w.Rules[i].Name)
	}
	for _, name := range remove {
		left := slices.DeleteFunc(slices.Clone(next), func(r nfdv1alpha1.NodeFeatureRule) bool { return r.Name == name })
		if len(left) == len(next) {
			return nil, cli.NotFound(nfdv1alpha1.NodeFeatureRuleResource.GroupResource(), name, cli.DidYouMean(name, known))
		}
		next = left
	}
	paths, err := input.Paths(files)
	if err != nil {
		return nil, err
	}
	found := len(remove) > 0
	all := input.Manifests(paths, cmd.InOrStdin())
	checker, err := rejected(cmd, w, all)
	if err != nil {
		return nil, err
	}
	var custom []*rules.RuleSet
	for _, file := range all {
		_, sets := checker.CustomRules(file)
		custom = append(custom, sets...)
		for _, d := range file.Documents {
			if d.Kind != manifest.KindRule && d.Kind != manifest.KindTemplate {
				continue
			}
			found = true
			var object nfdv1alpha1.NodeFeatureRule
			d.Decode(&object) // already reported
			if d.Kind == manifest.KindTemplate {
				w.Templates[object.Name] = &object.Spec
				continue
			}
			if i := slices.IndexFunc(next, func(r nfdv1alpha1.NodeFeatureRule) bool { return r.Name == object.Name }); i >= 0 {
				object.UID, object.CreationTimestamp = next[i].UID, next[i].CreationTimestamp // applying keeps them
				next = slices.Delete(next, i, i+1)
			}
			next = append(next, object)
		}
	}
	if !found && len(custom) == 0 {
		return nil, noRules(files)
	}
	return &Applied{next, custom}, nil
}

// rejected prints the errors in files that the cluster would reject: applying these files would change nothing. It returns the checker of
// files without errors.
func rejected(cmd *cobra.Command, w *World, files []*manifest.File) (*check.Checker, error) {
	known := review.Known{Rules: w.Limits, DefaultTemplate: w.Settings.DefaultTemplate, AllTemplates: true}
	known.Templates = func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.Templates[name], nil }
	checker := check.New(known, files...)
	set := &RuleFiles{files: files}
	for _, file := range files {
		set.findings = append(set.findings, checker.File(file)...)
	}
	if report.Errors(set.findings) == 0 {
		return checker, nil
	}
	set.Print(cmd.ErrOrStderr(), true)
	return nil, cli.ErrFound
}
