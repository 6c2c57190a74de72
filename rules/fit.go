package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// Bounds on what all rules together may give one node, in bytes. Each key counts twice: once where it stands, and once in the
// record of what was written, which is kept in annotations. The API server takes 256 KiB of annotations a Node, and refuses
// everything if there are more; a quarter of that is left to others.
const (
	// MaxLabels is how many bytes the labels of a node may take, each name counted twice: there is room for some two thousand.
	MaxLabels = 128 << 10
	// MaxAnnotations is the same for annotations.
	MaxAnnotations = 96 << 10
	// MaxResources is the same for extended resources.
	MaxResources = 32 << 10
	// MaxTaintTexts is the same for taints.
	MaxTaintTexts = 32 << 10
)

// maxSize is the most that one key and its value take: few keys need not be measured.
const maxSize = 2*(253+len("/")+63) + len(",") + keys.MaxAnnotationValue

var bounds = []struct {
	kind  Kind
	bytes int
	what  string
}{
	{KindLabel, MaxLabels, "labels"},
	{KindAnnotation, MaxAnnotations, "annotations"},
	{KindResource, MaxResources, "extended resources"},
	{KindTaint, MaxTaintTexts, "taints"},
}

// fit leaves out what a Node has no room for. The room is shared out: who asks for little gets all of it, and what is cut
// is what the greediest objects ask for last. So a rule that writes a label for each of ten thousand things cannot take away
// those of others.
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
		_, there := m.spaces[KindTaint].values[t.Key+":"+string(t.Effect)]
		return !there
	})
}

// cut leaves out what is beyond the room of an object. It returns the first key that it left out and how many more, and what
// the others take.
func (k *keyspace) cut(s *share, room int) (first claim, more, taken int) {
	if s.size <= room {
		return claim{}, 0, s.size
	}
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

// share is what one object asks for; nil stands for NodeFeatures.
type share struct {
	set    *RuleSet
	size   int
	claims []claim // in the order of the rules
}

// shares returns what each object asks for, those that ask for least first.
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

// size is what all keys take.
func (k *keyspace) size() (n int) {
	for key, value := range k.values {
		n += entrySize(key, value)
	}
	return n
}

// entrySize is what a key and its value take, on the Node and in the record, which leaves the default namespace out.
func entrySize(key, value string) int {
	return len(key) + len(value) + len(strings.TrimPrefix(key, nfdv1alpha1.FeatureLabelNamespace+"/")) + len(",")
}
