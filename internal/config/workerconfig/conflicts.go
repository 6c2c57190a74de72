package workerconfig

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
)

// customKey is the key of the worker's own rules.
const customKey = "sources.custom"

// conflicts returns warnings about custom rules that read features of a source that does not run, in a fixed order.
func (s *Settings) conflicts() (out []string) {
	list := builtin.Sources(s.Builtin)
	features, _ := discovery.Choose(s.FeatureSources, list)
	labels, _ := discovery.Choose(s.LabelSources, list)
	read := s.customFeatures()
	for _, source := range list {
		if features.Has(source) || labels.Has(source) {
			continue
		}
		for _, feature := range read {
			if domain, _, _ := strings.Cut(feature, "."); domain == source.Name() {
				out = append(out, fmt.Sprintf("a rule reads %s, and the source %s does not run: add %s to core.featureSources", feature, domain, domain))
			}
		}
	}
	return out
}

// customFeatures returns the names of the features that custom rules match, sorted.
func (s *Settings) customFeatures() (out []string) {
	var root yaml.Node
	if len(s.Custom) == 0 || yaml.Unmarshal(s.Custom, &root) != nil {
		return nil // the rules have an error, which their reader reports
	}
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 && child.Value == "feature" {
				out = append(out, strings.ToLower(n.Content[i+1].Value))
			}
			walk(child)
		}
	}
	walk(&root)
	slices.Sort(out)
	return slices.Compact(out)
}

// Check returns the errors and warnings of a configuration. The worker starts with it unless it has errors.
func Check(data []byte) []yamltree.Problem {
	s := Default()
	out := config.Check(data, s.Keys())
	for _, message := range s.conflicts() {
		p := yamltree.Problem{Severity: yamltree.Warning, Code: "suspicious", Path: customKey, Message: message}
		if text := yamltree.Parse(data, yamltree.Options{}); len(text.Documents) > 0 {
			if way, found := yamltree.Follow(text.Documents[0].Content[0], customKey); found {
				p.Position = yamltree.At(way[len(way)-1].Value)
			}
		}
		out = append(out, p)
	}
	return out
}
