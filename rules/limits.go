package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
)

// Limits on the compiled size in bytes, as estimated by package size. Each part of an object has its own limit, but an object that
// reaches all of them would take gigabytes.
const (
	// MaxSize is the maximum compiled size of an object: 1,000 patterns, 40,000 values or 5,000 labels. An ordinary rule takes 3
	// kB, so 256 of them use a fifth.
	MaxSize = 4 << 20
	// MaxClusterSize is the maximum compiled size of all objects of a cluster together: 5,000 ordinary rules. The controller, the
	// webhook and the extender each keep them in memory; the webhook's limit is 256 MiB.
	MaxClusterSize = 16 << 20
	// MaxRequirementSize is the maximum compiled size of everything that one pod, NodeFeatureRequest or policy requires and
	// prefers: 100 patterns or 3,000 values. Any user who may create pods causes this much work with each change.
	MaxRequirementSize = 512 << 10
)

// Sizes of the parts of a rule, measured and rounded up.
const (
	ruleBytes       = 768
	termBytes       = 256
	matchBytes      = 192
	matchValueBytes = 96
)

// ruleSize returns the size of a rule without its regular expressions and templates, because equal ones are kept only once.
func ruleSize(in *nfdv1alpha1.Rule) int {
	n := ruleBytes + matcherSize(in.MatchFeatures)
	for i := range in.MatchAny {
		n += termBytes + matcherSize(in.MatchAny[i].MatchFeatures)
	}
	for _, outputs := range []map[string]string{in.Vars, in.Labels, in.Annotations, in.ExtendedResources} {
		for key, value := range outputs {
			n += size.Entry(key, value)
		}
	}
	for i := range in.Taints {
		n += size.Entry(in.Taints[i].Key, in.Taints[i].Value)
	}
	for i := range in.NodeConditions {
		c := &in.NodeConditions[i]
		n += size.Entry(c.Type, c.Status) + size.Entry(c.Reason, c.Message)
	}
	for i := range in.Conditions {
		n += size.JSON(in.Conditions[i].Args.Raw)
		if loop := in.Conditions[i].Loop; loop != nil {
			n += size.JSON(loop.Raw)
		}
	}
	for i := range in.Actions {
		n += size.JSON(in.Actions[i].Args.Raw)
		if loop := in.Actions[i].Loop; loop != nil {
			n += size.JSON(loop.Raw)
		}
	}
	if in.Loop != nil {
		n += size.JSON(in.Loop.Raw)
	}
	return n
}

func matcherSize(terms nfdv1alpha1.FeatureMatcher) int {
	n := 0
	for i := range terms {
		n += termBytes + len(terms[i].Feature)
		if e := terms[i].MatchName; e != nil {
			n += expressionSize(e)
		}
		if terms[i].MatchExpressions == nil {
			continue
		}
		for name, e := range *terms[i].MatchExpressions {
			n += len(name) + expressionSize(e)
		}
	}
	return n
}

func expressionSize(e *nfdv1alpha1.MatchExpression) int {
	n := matchBytes
	if e == nil {
		return n
	}
	each := matchValueBytes
	if match.Operator(e.Op).Patterns {
		each += match.PatternBytes
	}
	for _, v := range e.Value {
		n += each + len(v)
	}
	return n
}

// tooLarge returns the error of the first rule that exceeds an object's limit. Earlier rules are kept.
func tooLarge(path *field.Path, limit int) *field.Error {
	return field.Forbidden(path, fmt.Sprintf("up to here the object takes more than %d bytes of memory when it is compiled; "+
		"split it, or use fewer values and simpler patterns", limit))
}

// Limits on the outputs of all rules for one node, in bytes. Each key counts twice: once on the Node, and once in the record of
// outputs, which is stored in annotations. The API server rejects Nodes with more than 256 KiB of annotations; a quarter of that is
// left to other clients.
const (
	// MaxLabels is the maximum size of a node's labels, counting each name twice: enough for about 2,000 labels.
	MaxLabels = 128 << 10
	// MaxAnnotations is the same for annotations.
	MaxAnnotations = 96 << 10
	// MaxResources is the same for extended resources.
	MaxResources = 32 << 10
	// MaxTaintTexts is the same for taints.
	MaxTaintTexts = 32 << 10
	// MaxConditions is the same for conditions of the Node.
	MaxConditions = 32 << 10
)

// maxSize is the maximum size of one key and its value. It avoids measuring nodes with few keys.
const maxSize = 2*(253+len("/")+63) + len(",") + keys.MaxAnnotationValue

var bounds = []struct {
	kind  keys.Kind
	bytes int
	what  string
}{
	{keys.Label, MaxLabels, "labels"},
	{keys.Annotation, MaxAnnotations, "annotations"},
	{keys.Resource, MaxResources, "extended resources"},
	{keys.Taint, MaxTaintTexts, "taints"},
	{keys.Condition, MaxConditions, "conditions"},
}

// fit leaves out outputs that exceed the limits of a Node. Objects share the space: those with few outputs keep all of them, and
// those with the most lose their last outputs. A rule that writes ten thousand labels therefore cannot displace labels of other
// objects.
func (m *merger) fit() {
	for _, b := range bounds {
		space := m.spaces[b.kind]
		if len(space.values)*maxSize <= b.bytes || space.size() <= b.bytes {
			continue
		}
		left := b.bytes
		shares := space.shares()
		for i, s := range shares {
			first, more, taken := space.cut(s, left/(len(shares)-i))
			left -= taken
			if first.key == "" {
				continue
			}
			no := Rejection{Ref: first.ref(), Kind: b.kind, Key: first.key, Reason: fmt.Sprintf(
				"it and %d more are left out: a node has room for %d bytes of %s, of which this object gets %d", more, b.bytes, b.what, taken)}
			if first.rule != nil {
				no = first.rule.set.conceal(no)
			}
			m.rejected = append(m.rejected, no)
		}
	}
	m.taints = slices.DeleteFunc(m.taints, func(t corev1.Taint) bool {
		_, there := m.spaces[keys.Taint].values[keys.TaintName(t)]
		return !there
	})
}

// cut leaves out the outputs that exceed an object's share. It returns the first key that it left out, how many others it left out,
// and the size of the rest.
func (k *keyspace) cut(s *share, room int) (first claim, more, taken int) {
	for _, c := range s.claims {
		size := entrySize(c.key, k.values[c.key])
		if first.key == "" && taken+size <= room {
			taken += size
			continue
		}
		if first.key == "" {
			first = c
		} else {
			more++
		}
		k.unset(c.key)
	}
	return first, more, taken
}

// share holds the outputs of one object; a nil set means NodeFeatures.
type share struct {
	set    *RuleSet
	size   int
	claims []claim // in rule order
}

// shares returns the outputs of each object, smallest first.
func (k *keyspace) shares() []*share {
	at := map[*RuleSet]*share{}
	var out []*share
	for _, c := range k.claims {
		if c.key == "" {
			continue
		}
		var set *RuleSet
		if c.rule != nil {
			set = c.rule.set
		}
		s := at[set]
		if s == nil {
			s = &share{set: set}
			at[set] = s
			out = append(out, s)
		}
		s.size += entrySize(c.key, k.values[c.key])
		s.claims = append(s.claims, c)
	}
	slices.SortStableFunc(out, func(a, b *share) int { return cmp.Compare(a.size, b.size) })
	return out
}

// size returns the size of all keys.
func (k *keyspace) size() (n int) {
	for key, value := range k.values {
		n += entrySize(key, value)
	}
	return n
}

// entrySize returns the size of a key and its value on the Node and in the record, which omits the default namespace.
func entrySize(key, value string) int {
	return len(key) + len(value) + len(strings.TrimPrefix(key, nfdv1alpha1.FeatureLabelNamespace+"/")) + len(",")
}
