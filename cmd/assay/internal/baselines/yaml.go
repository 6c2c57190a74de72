package baselines

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
)

// YAML returns the proposal as a NodeBaseline, with comments about what is not in it.
func (p *Proposal) YAML() string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("# What at least %d %% of %s have in common. Review it: remove what may differ, and allow versions with op Ge and type version.", Share, clip.Count(p.Nodes, "node"))
	line("apiVersion: %s", assayv1alpha1.GroupVersion)
	line("kind: %s", assayv1alpha1.NodeBaselineGVK.Kind)
	line("metadata: {name: %s}", key(p.Name))
	line("spec:")
	if len(p.Selector) > 0 {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(p.Selector)) {
			labels = append(labels, key(name)+": "+clip.Quote(p.Selector[name]))
		}
		line("  nodeSelector: {%s}", strings.Join(labels, ", "))
	}
	line("  require:")
	for _, c := range p.Checks {
		line("  - name: %s%s", c.Name, p.comment(c))
		for _, field := range c.Requirement {
			line("    %s", field)
		}
	}
	if len(p.Left) > 0 {
		line("# Not in it, because fewer nodes have the same value:")
		for i := range p.Left {
			line("# - %s", clip.Printable(p.Left[i].String()))
		}
	}
	return out.String()
}

// comment returns how many nodes do not meet a check.
func (p *Proposal) comment(c Check) string {
	if c.Nodes == p.Nodes {
		return ""
	}
	return fmt.Sprintf(" # not on %d of %s", p.Nodes-c.Nodes, clip.Count(p.Nodes, "node"))
}

// Notes returns what a user must know in addition to the proposal.
func (p *Proposal) Notes() (out []string) {
	if p.Unknown > 0 {
		out = append(out, fmt.Sprintf("the features of %s are unknown: they are not in the comparison", clip.Count(p.Unknown, "node")))
	}
	if p.Omitted > 0 {
		out = append(out, fmt.Sprintf("%s are left out: a baseline has room for %d", clip.Count(p.Omitted, "check"), len(p.Checks)))
	}
	return out
}

// plain are strings that are not quoted in YAML.
var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*([-./][A-Za-z0-9_]+)*$`)

// words are strings that YAML reads as another type.
var words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|y|n|null|nan|inf)$`)

// key returns a string in YAML, without quotes where it needs none.
func key(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	return clip.Quote(text)
}
