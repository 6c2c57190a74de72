package baseline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
)

// Node is a node of a fleet.
type Node struct {
	// Input is the input of rules for the node.
	Input rules.Input
	// Unknown says that the features of the node may not be those that it has now: its worker is not running, or has not published since
	// the node booted. The node then never deviates.
	Unknown bool
	// Unpublished says that the features do not include those of the node's worker, so that even whether matchFeatures selects the node
	// is unknown. This is so without publishers in Input, too. It does not matter to a baseline that reads objects of the cluster alone.
	Unpublished bool
	// Labels are those of the Node, with those that rules write, for levels.
	Labels map[string]string
	// Created is when the Node was created.
	Created metav1.Time
}

// Verdict is what a baseline says about one node, without the others. It is immutable.
type Verdict struct {
	unknown bool
	failing []failure
	unread  []int    // indices in require of those for which it is unknown whether the node meets them
	sources []string // that the worker has not read, of all checks whose result is unknown because of it
	group   string   // the labels in within
	values  []observed
	place   *place // nil: the baseline has no levels
}

// failure is a requirement that a node does not meet.
type failure struct {
	index int // in require
	why   string
}

// observed is the value of a node.
type observed struct {
	text string
	kind observedKind
}

type observedKind uint8

const (
	present     observedKind = iota
	missing                  // the node lacks something that the expression reads
	faulty                   // the expression cannot be evaluated: text says why
	unreadValue              // the node's worker has not read what the expression reads
)

// absent is how a missing value is shown.
const absent = "absent"

// String returns the value as the status shows it.
func (o observed) String() string {
	switch {
	case o.kind == missing:
		return absent
	case o.kind == faulty:
		return clip.Text("error: "+o.text, maxValue)
	case o.text == "" || o.text == absent || strings.HasPrefix(o.text, "error: "):
		return strconv.Quote(clip.Text(o.text, maxValue))
	}
	return clip.Text(o.text, maxValue)
}

// Judge returns the verdict about a node, or nil if the baseline does not select it. A node whose worker has published nothing is selected by
// its labels alone, and is unknown: whether matchFeatures selects it cannot be decided.
func (b *Baseline) Judge(n Node) *Verdict {
	if b.selector != nil && !b.selector.Matches(labels.Set(n.Input.Node.Labels)) {
		return nil
	}
	unpublished := (n.Unpublished || len(n.Input.Publishers) == 0) && !b.fromCluster()
	unknown := n.Unknown || unpublished
	if b.match != nil && !unpublished {
		if sources := b.match.Unread(n.Input); len(sources) > 0 {
			return &Verdict{unknown: true, sources: sources}
		}
		ok, err := b.match.Eval(n.Input, nil)
		if !ok && err == nil {
			return nil
		}
		unknown = unknown || err != nil
	}
	if unknown {
		return &Verdict{unknown: true}
	}
	out := &Verdict{group: b.group(n.Input.Node.Labels), place: b.place(n)}
	for i, r := range b.require {
		if sources := r.Unread(n.Input); len(sources) > 0 {
			out.unread, out.sources = append(out.unread, i), append(out.sources, sources...)
		} else if ok, err := r.Eval(n.Input, nil); !ok || err != nil {
			out.failing = append(out.failing, failure{i, r.why(n.Input)})
		}
	}
	for _, v := range b.uniform {
		if sources := v.Unread(n.Input); len(sources) > 0 {
			out.values, out.sources = append(out.values, observed{kind: unreadValue}), append(out.sources, sources...)
		} else {
			out.values = append(out.values, v.observe(n.Input))
		}
	}
	slices.Sort(out.sources)
	out.sources = slices.Compact(out.sources)
	return out
}

func (r *requirement) why(in rules.Input) string {
	why := r.Why(in, nil)
	if r.message != "" {
		why = r.message + ": " + why
	}
	return clip.Text(why, maxMessage)
}

func (v *value) observe(in rules.Input) observed {
	text, ok, err := v.Eval(in)
	switch {
	case err != nil:
		return observed{err.Error(), faulty}
	case !ok:
		return observed{kind: missing}
	}
	return observed{text: text}
}

// group returns the labels in within with their values, in the form KEY=VALUE,KEY=VALUE, and !KEY for a label that the node lacks, as in a selector of labels.
func (b *Baseline) group(of map[string]string) string {
	var out []string
	for _, name := range b.within {
		part := "!" + name
		if value, ok := of[name]; ok {
			part = name + "=" + value
		}
		out = append(out, part)
	}
	return strings.Join(out, ",")
}

// Reason returns the name of a check in CamelCase, for the reason of a condition.
func Reason(check string) string {
	var out strings.Builder
	for _, word := range strings.Split(check, "-") {
		if word != "" {
			_, _ = fmt.Fprintf(&out, "%s%s", strings.ToUpper(word[:1]), word[1:])
		}
	}
	return out.String()
}
