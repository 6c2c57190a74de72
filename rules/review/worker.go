package review

import (
	"fmt"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/manifest"
)

// WorkerKeys lists the keys of the worker's configuration by section. A test of the worker compares them with the keys that the
// worker reads.
var WorkerKeys = map[string][]string{
	"": {"core", "sources"},
	"core": {
		"sleepInterval", "featureSources", "labelSources", "sources", "labelWhiteList", "noPublish", "noPublishFeatures",
		"ownerRefs", "noOwnerRefs", "maxFeatureBytes", "shareFeatures", "logLevel", "klog",
	},
	"sources": {"cpu", "kernel", "pci", "usb", "local", "fake", "custom", "gpu", "memory", "network", "rdma", "storage", "system"},
}

// IsWorkerConfig reports whether a document is a worker's configuration or a list of custom rules.
func IsWorkerConfig(d *manifest.Document) bool {
	if d.Kind != "" || d.APIVersion != "" {
		return false
	}
	return d.Root.Kind == yaml.SequenceNode || d.Child("core") != nil || d.Child("sources") != nil
}

// WorkerConfig reviews a worker's configuration and returns problems with positions in the document.
func WorkerConfig(d *manifest.Document, known Known) []manifest.Problem {
	if d.Root.Kind == yaml.SequenceNode {
		return custom(d, d.Root, "", known)
	}
	problems := unknownKeys(d, d.Root, "")
	problems = append(problems, unknownKeys(d, d.Child("core"), "core")...)
	problems = append(problems, unknownKeys(d, d.Child("sources"), "sources")...)
	if list := d.Child("sources", "custom"); list != nil {
		problems = append(problems, custom(d, list, "sources.custom", known)...)
	}
	return problems
}

func unknownKeys(d *manifest.Document, n *yaml.Node, section string) []manifest.Problem {
	var out []manifest.Problem
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if slices.Contains(WorkerKeys[section], key.Value) {
			continue
		}
		text := fmt.Sprintf("unknown key %q", key.Value)
		if near := manifest.Nearest(key.Value, WorkerKeys[section]); near != "" {
			text += "; did you mean " + near + "?"
		}
		path := key.Value
		if section != "" {
			path = section + "." + path
		}
		p := d.Problem(manifest.Error, "unknown-field", path, text)
		p.Line, p.Column = key.Line, key.Column
		out = append(out, p)
	}
	return out
}

// custom reviews the worker's custom rules, in any of NFD's notations.
func custom(d *manifest.Document, list *yaml.Node, path string, known Known) []manifest.Problem {
	if list.Kind != yaml.SequenceNode {
		return []manifest.Problem{d.Problem(manifest.Error, "type", path, "expected a list of rules")}
	}
	var problems []manifest.Problem
	copied := clone(list)
	copied.Content = nil
	var places []int // index in the document of each remaining rule
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
	known.Rules.Custom = true
	_, report := rules.CompileSpec("custom", &spec, known.Rules)
	found := Findings{}
	found.report(report, &known)
	at := func(p string) string {
		n, rest, ok := split(p)
		if !ok || n >= len(places) {
			return path
		}
		return fmt.Sprintf("%s[%d]%s", path, places[n], rest)
	}
	for _, e := range found.Errors {
		e.Field = at(e.Field)
	}
	for i := range found.Warnings {
		found.Warnings[i].Path = at(found.Warnings[i].Path)
	}
	return append(problems, Problems(d, found)...)
}

// lineInText matches the line number in a converter's message, which is redundant.
var lineInText = regexp.MustCompile(`^line \d+: `)

func clone(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = clone(c)
	}
	return &out
}
