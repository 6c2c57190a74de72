package check

import (
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
)

// Rule compiles a NodeFeatureRule or a template. It returns the object together with its bases, what it compiles to, which is
// never nil, and what is wrong with it.
func (c *Checker) Rule(d *manifest.Document) (*nfdv1alpha1.NodeFeatureRule, *rules.RuleSet, []manifest.Problem) {
	object, problems := decodeRule(d)
	if errors := rulesShape(d); errors != nil {
		problems = append(problems, errors...)
	}
	whole, own, complete, more := c.assemble(d, object)
	problems = append(problems, more...)
	set, report := rules.Compile(whole, c.opt.Rules)
	template := d.Kind == manifest.KindTemplate
	found := compiled(d, report, c.opt.Strict, own)
	if template || !complete {
		for i := range found { // a base, or what is based on this, may declare it
			if found[i].Severity == manifest.Error && strings.Contains(found[i].Message, "unknown name") {
				found[i].Severity = manifest.Warning
			}
		}
	}
	settings := c.opt.Lint
	settings.Template = template
	for _, w := range lint.Spec(&object.Spec, settings) {
		if !d.Suspect(w.Path) {
			found = append(found, d.Problem(manifest.Warning, "suspicious", w.Path, w.Message))
		}
	}
	if c.opt.Features != nil {
		for _, ref := range lint.Features(&object.Spec) {
			if !c.opt.Features[ref.Feature] && !d.Suspect(ref.Path) {
				found = append(found, d.Problem(manifest.Warning, "cluster", ref.Path, "no node of the cluster has "+ref.Feature+", so this matches none"))
			}
		}
	}
	return whole, set, append(problems, found...)
}

func decodeRule(d *manifest.Document) (*nfdv1alpha1.NodeFeatureRule, []manifest.Problem) {
	object := &nfdv1alpha1.NodeFeatureRule{}
	if d.Kind != manifest.KindTemplate {
		return object, d.Decode(object)
	}
	var template assayv1alpha1.NodeFeatureRuleTemplate
	problems := d.Decode(&template)
	object.ObjectMeta, object.Spec = template.ObjectMeta, template.Spec
	return object, problems
}

// rulesShape reports an object without anything in it.
func rulesShape(d *manifest.Document) []manifest.Problem {
	if d.Child("spec") == nil || d.Child("spec", "rules") != nil || d.Child("spec", "basedOn") != nil ||
		d.Child("spec", "rulesFrom") != nil || d.Kind == manifest.KindTemplate || d.Suspect("spec") {
		return nil
	}
	return []manifest.Problem{d.Problem(manifest.Error, "required", "spec.rules", "there are no rules: write rules, basedOn or rulesFrom")}
}

// assemble returns the object with its bases, and how the paths of what Compile finds in it translate to paths in the
// document itself.
func (c *Checker) assemble(d *manifest.Document, object *nfdv1alpha1.NodeFeatureRule) (
	whole *nfdv1alpha1.NodeFeatureRule, own func(string) (string, bool), complete bool, problems []manifest.Problem) {
	if len(object.Spec.BasedOn) == 0 {
		return object, same, len(object.Spec.RulesFrom) == 0, nil
	}
	main := compose.Document{Name: object.Name, Template: d.Kind == manifest.KindTemplate, Spec: &object.Spec}
	out, err := compose.Assemble(main, c.lookup(filepath.Dir(d.File().Name)))
	if err != nil {
		severity := manifest.Error
		var missing *compose.MissingError
		if errors.As(err, &missing) || strings.HasPrefix(err.Error(), "missing base ") {
			severity = manifest.Warning
			err = errors.New(err.Error() + "; it is not among these files, so the rules were looked at without it")
		}
		return object, same, false, []manifest.Problem{d.Problem(severity, "base", "spec.basedOn", err.Error())}
	}
	index := map[string]int{}
	for i := range object.Spec.Rules {
		index[object.Spec.Rules[i].Name] = i
	}
	whole = &nfdv1alpha1.NodeFeatureRule{ObjectMeta: object.ObjectMeta, Spec: *out.Spec}
	return whole, func(path string) (string, bool) {
		m := rulePath.FindStringSubmatch(path)
		if m == nil {
			return path, true
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n >= len(out.Spec.Rules) {
			return "", false
		}
		i, ok := index[out.Spec.Rules[n].Name]
		return "spec.rules[" + itoa(i) + "]" + m[2], ok
	}, true, nil
}

var rulePath = regexp.MustCompile(`^spec\.rules\[(\d+)\](.*)$`)

// lookup finds templates among the documents, and in files beside them.
func (c *Checker) lookup(dir string) compose.Lookup {
	return func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		if d := c.templates[strings.TrimPrefix(name, "cluster:")]; d != nil {
			object, _ := decodeRule(d)
			return &object.Spec, nil
		}
		if spec := c.opt.Templates[strings.TrimPrefix(name, "cluster:")]; spec != nil {
			return spec, nil
		}
		if c.opt.Read == nil || !strings.ContainsAny(name, "./") || strings.Contains(name, "://") {
			return nil, nil
		}
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		data, err := c.opt.Read(path)
		if err != nil {
			return nil, nil //nolint:nilerr // a missing base is reported as such
		}
		for _, d := range manifest.Parse(path, data).Documents {
			if d.Kind == manifest.KindTemplate || d.Kind == manifest.KindRule {
				object, _ := decodeRule(d)
				return &object.Spec, nil
			}
		}
		return nil, nil
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
