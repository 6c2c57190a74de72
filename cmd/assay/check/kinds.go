package check

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
)

func (c *Checker) group(d *manifest.Document) []manifest.Problem {
	var object nfdv1alpha1.NodeFeatureGroup
	problems := d.Decode(&object)
	rule := asRule(&object)
	_, report := rules.Compile(rule, c.opt.Rules)
	own := func(path string) (string, bool) {
		return strings.Replace(path, "spec.rules[", "spec.featureGroupRules[", 1), true
	}
	problems = append(problems, compiled(d, report, c.opt.Strict, own)...)
	for _, w := range lint.Spec(&rule.Spec, c.opt.Lint) {
		if path, _ := own(w.Path); !d.Suspect(path) {
			problems = append(problems, d.Problem(manifest.Warning, "suspicious", path, w.Message))
		}
	}
	return problems
}

// maxValue is the longest value of a feature that is no mistake: a page, which is what sysfs gives at most.
const maxValue = 4096

func (c *Checker) feature(d *manifest.Document) []manifest.Problem {
	var object nfdv1alpha1.NodeFeature
	problems := d.Decode(&object)
	if object.Labels[nfdv1alpha1.NodeNameLabel] == "" {
		problems = append(problems, d.Problem(manifest.Warning, "dropped", "metadata.labels",
			"without the label "+nfdv1alpha1.NodeNameLabel+": NODE nobody reads the object"))
	}
	features := field.NewPath("spec", "features")
	add := func(severity manifest.Severity, code string, path *field.Path, format string, args ...any) {
		problems = append(problems, d.Problem(severity, code, path.String(), fmt.Sprintf(format, args...)))
	}
	for kind, names := range map[string][]string{
		"flags": sortedKeys(object.Spec.Features.Flags), "attributes": sortedKeys(object.Spec.Features.Attributes),
		"instances": sortedKeys(object.Spec.Features.Instances),
	} {
		for _, name := range names {
			path := features.Child(kind).Key(name)
			switch {
			case strings.EqualFold(name, nfdv1alpha1.RuleMatchedFeature):
				add(manifest.Error, "forbidden", path, "is what rules produced on the node, and cannot be published; choose another name")
			case strings.Count(name, ".") != 1:
				add(manifest.Warning, "suspicious", path, "the name of a feature is DOMAIN.FEATURE, with one dot; templates cannot reach this one")
			case name != strings.ToLower(name):
				add(manifest.Warning, "suspicious", path, "matchFeatures looks for names in lower case, and will not find this one")
			}
		}
	}
	for name, set := range object.Spec.Features.Attributes {
		for key, value := range set.Elements {
			if len(value) > maxValue {
				add(manifest.Error, "limit", features.Child("attributes").Key(name).Child("elements").Key(key),
					"the value has %d bytes; at most %d are taken", len(value), maxValue)
			}
		}
	}
	for name, value := range object.Spec.Labels {
		if strings.HasPrefix(value, "@") {
			continue
		}
		if verdict := c.opt.Rules.Keys.Label(name, value); !verdict.OK() {
			add(manifest.Warning, "dropped", field.NewPath("spec", "labels").Key(name), "%s", verdict.Message())
		}
	}
	return problems
}

func (c *Checker) request(d *manifest.Document) []manifest.Problem {
	var object assayv1alpha1.NodeFeatureRequest
	problems := d.Decode(&object)
	return append(problems, c.asked(d, &object.Spec)...)
}

func (c *Checker) policy(d *manifest.Document) []manifest.Problem {
	var object assayv1alpha1.NodeFeatureSchedulingPolicy
	problems := d.Decode(&object)
	return append(problems, c.asked(d, &object.Spec.NodeFeatureRequestSpec)...)
}

// asked checks what pods ask for.
func (c *Checker) asked(d *manifest.Document, spec *assayv1alpha1.NodeFeatureRequestSpec) []manifest.Problem {
	var out []manifest.Problem
	requirement := func(path *field.Path, r *assayv1alpha1.Requirement) {
		_, report := rules.CompileRequirement(path, r.MatchFeatures, r.MatchAny, r.Conditions, c.opt.Rules)
		out = append(out, compiled(d, report, c.opt.Strict, func(p string) (string, bool) {
			if !strings.HasPrefix(p, path.String()) {
				p = path.String() + "." + p
			}
			return p, true
		})...)
	}
	if spec.Required != nil {
		requirement(field.NewPath("spec", "required"), spec.Required)
	}
	for i := range spec.Preferred {
		path := field.NewPath("spec", "preferred").Index(i)
		if w := spec.Preferred[i].Weight; w < 1 || w > 100 {
			out = append(out, d.Problem(manifest.Error, "invalid", path.Child("weight").String(), "a weight is 1 to 100"))
		}
		requirement(path, &spec.Preferred[i].Requirement)
	}
	return out
}

// The keys of a worker's configuration.
var (
	workerKeys = []string{"core", "sources"}
	coreKeys   = []string{
		"sleepInterval", "featureSources", "labelSources", "sources", "labelWhiteList", "noPublish", "noPublishFeatures",
		"ownerRefs", "noOwnerRefs", "maxFeatureBytes", "logLevel", "klog",
	}
	sourceKeys = []string{"cpu", "kernel", "pci", "usb", "local", "fake", "custom", "memory", "network", "storage", "system"}
)

// workerConfig reports whether a document is the worker's configuration, or a list of its custom rules.
func workerConfig(d *manifest.Document) bool {
	if d.Kind != "" || d.APIVersion != "" {
		return false
	}
	if d.Root.Kind == yaml.SequenceNode {
		return true
	}
	return d.Child("core") != nil || d.Child("sources") != nil
}

func (c *Checker) worker(d *manifest.Document) []manifest.Problem {
	if d.Root.Kind == yaml.SequenceNode {
		return c.custom(d, d.Root, "")
	}
	problems := unknownKeys(d, d.Root, "", workerKeys)
	problems = append(problems, unknownKeys(d, d.Child("core"), "core.", coreKeys)...)
	problems = append(problems, unknownKeys(d, d.Child("sources"), "sources.", sourceKeys)...)
	if list := d.Child("sources", "custom"); list != nil {
		problems = append(problems, c.custom(d, list, "sources.custom")...)
	}
	return problems
}

func unknownKeys(d *manifest.Document, n *yaml.Node, prefix string, known []string) []manifest.Problem {
	var out []manifest.Problem
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if slices.Contains(known, key.Value) {
			continue
		}
		text := fmt.Sprintf("unknown key %q", key.Value)
		if near := manifest.Nearest(key.Value, known); near != "" {
			text += "; did you mean " + near + "?"
		}
		p := d.Problem(manifest.Error, "unknown-field", prefix+key.Value, text)
		p.Line, p.Column = key.Line, key.Column
		out = append(out, p)
	}
	return out
}

// custom checks the worker's own rules, in any of NFD's notations.
func (c *Checker) custom(d *manifest.Document, list *yaml.Node, path string) []manifest.Problem {
	if list.Kind != yaml.SequenceNode {
		return []manifest.Problem{d.Problem(manifest.Error, "type", path, "want a list of rules")}
	}
	var problems []manifest.Problem
	copied := clone(list)
	copied.Content = nil
	var places []int // of the rules that are left, in the document
	for i, rule := range list.Content {
		one := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{clone(rule)}}
		if _, err := convert.MatchOn(one); err != nil {
			text := lineInText.ReplaceAllString(err.Error(), "")
			problems = append(problems, d.Problem(manifest.Error, "invalid", fmt.Sprintf("%s[%d]", path, i), text))
			continue
		}
		convert.LongForm(one)
		copied.Content, places = append(copied.Content, one.Content...), append(places, i)
	}
	var spec nfdv1alpha1.NodeFeatureRuleSpec
	problems = append(problems, d.DecodeNode(copied, path, &spec.Rules)...)
	opt := c.opt.Rules
	opt.Custom = true
	_, report := rules.CompileSpec("custom", &spec, opt)
	return append(problems, compiled(d, report, c.opt.Strict, func(p string) (string, bool) {
		m := rulePath.FindStringSubmatch(p)
		if m == nil {
			return path, true
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n >= len(places) {
			return path, true
		}
		return fmt.Sprintf("%s[%d]%s", path, places[n], m[2]), true
	})...)
}

// lineInText is the place as a converter tells it; the problem has one of its own.
var lineInText = regexp.MustCompile(`^line \d+: `)

func clone(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = clone(c)
	}
	return &out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
