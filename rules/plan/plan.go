// Package plan computes the smallest change to a Node.
package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// State is the part of a Node that plans change.
type State struct {
	ResourceVersion     string
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	Capacity            corev1.ResourceList
	Allocatable         corev1.ResourceList
	Conditions          []corev1.NodeCondition
}

// StateOf returns the state of a Node. It does not copy the Node.
func StateOf(node *corev1.Node) State {
	return State{
		ResourceVersion: node.ResourceVersion,
		Labels:          node.Labels, Annotations: node.Annotations,
		Taints:   node.Spec.Taints,
		Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable,
		Conditions: node.Status.Conditions,
	}
}

// Desired is the desired state of a Node. Names include the namespace.
type Desired struct {
	Labels, Annotations, ExtendedResources map[string]string
	Taints                                 []corev1.Taint
	// Conditions are what conditions say, by type, in the form of keys.FormatCondition.
	Conditions map[string]string
	// Now is the time of conditions that change.
	Now metav1.Time
	// Failed names the rule that prevents all other writes to the Node. It is written to one of Assay's own annotations, which
	// rules cannot write and records do not list.
	Failed string
	// Generation changes with the features of the node. It is written to an annotation like Failed. An empty string keeps the
	// annotation, NoGeneration removes it.
	Generation string
}

// NoGeneration is the Generation that removes the annotation.
const NoGeneration = "none"

// Policy defines what a plan may change.
type Policy struct {
	// Record defines how ownership is recorded.
	Record Record
	// KeepForeign keeps keys that another client has written, even if a rule sets them. By default the plan takes them over.
	KeepForeign bool
	// Taints allows taints. Otherwise the plan creates none, and removes existing taints of rules.
	Taints bool
	// Keys defines the protected keys. Nil means the keys that are always protected.
	Keys *keys.Policy
}

// Op is the operation of a step.
type Op string

// The operations.
const (
	Add    Op = "add"    // the key did not exist
	Change Op = "change" // the key had another value
	Remove Op = "remove" // no rule sets the key anymore
	Adopt  Op = "adopt"  // the key already has the desired value, and becomes owned
	Forget Op = "forget" // the key was owned, but another client has removed it and no rule sets it anymore
)

// Step is one change of a Plan.
type Step struct {
	Kind     keys.Kind
	Op       Op
	Key      string // for taints: key:effect
	Old, New string
	// Foreign is set if another client has written the key.
	Foreign bool
	// Mark is set if the key is an annotation or condition of Assay itself, a start-up taint, or the label of a request that the node
	// does not meet: no rule sets it.
	Mark bool

	ownedBefore bool
	grows       bool // for a resource: the new amount is larger
	taint       corev1.Taint
}

// Recorded reports whether the record on the Node lists the key as owned.
func (s Step) Recorded() bool { return s.ownedBefore }

// Plan is the smallest change that brings a Node to the desired state. It is immutable.
type Plan struct {
	// Steps are sorted by kind and key.
	Steps []Step
	// Left are desired keys that keep the value of another client, sorted. Their Op is empty if it is the desired value.
	Left []Step

	state  State
	policy Policy
	now    metav1.Time
	owned  map[keys.Kind]map[string]bool   // owned keys after the plan is applied; nil if same has the kind
	same   map[keys.Kind]map[string]string // wanted keys of kinds of which nothing changes: the owned ones
}

// Compute returns the plan for a Node.
func Compute(state State, want Desired, policy Policy) *Plan {
	p := &Plan{state: state, policy: policy, now: want.Now, owned: map[keys.Kind]map[string]bool{}, same: map[keys.Kind]map[string]string{}}
	p.compare(keys.Label, policy.Record.Labels(), state.Labels, want.Labels, equalText)
	p.compare(keys.Annotation, policy.Record.Annotations(), state.Annotations, want.Annotations, equalText)
	p.compare(keys.Resource, policy.Record.Resources(), resources(state), want.ExtendedResources, equalQuantity)
	p.compareConditions(want.Conditions)
	p.compareTaints(want.Taints)
	p.mark(assayv1alpha1.FailedAnnotation, want.Failed)
	switch want.Generation {
	case "":
	case NoGeneration:
		p.mark(assayv1alpha1.FeaturesGenerationAnnotation, "")
	default:
		p.mark(assayv1alpha1.FeaturesGenerationAnnotation, want.Generation)
	}
	slices.SortFunc(p.Steps, compareSteps)
	slices.SortFunc(p.Left, compareSteps)
	return p
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Steps) == 0 }

// Takes reports whether the step removes something that pods may rely on. A larger amount of a resource does not count: a kubelet
// resets unknown resources to 0 when it starts, and after an upgrade the whole fleet waits for them.
func (s Step) Takes() bool {
	return !s.Mark && (s.Op == Remove || s.Op == Change && s.ownedBefore && !s.grows)
}

// Hits reports whether the step gives the Node a taint that it does not have, or a condition another status.
func (s Step) Hits() bool {
	switch {
	case s.Mark:
		return false
	case s.Kind == keys.Taint:
		return s.Op == Add
	case s.Kind == keys.Condition:
		before, _, _ := keys.ParseCondition(s.Old)
		after, _, _ := keys.ParseCondition(s.New)
		return s.Op == Add || s.Op == Change && before != after
	}
	return false
}

// Without returns the plan without the steps that drop selects. Their keys keep their values and owners.
func (p *Plan) Without(drop func(Step) bool) *Plan {
	out := p // until a step is dropped: most plans keep all of theirs, and are not copied
	for i, s := range p.Steps {
		dropped := drop(s)
		if dropped && out == p {
			out = p.with(slices.Clone(p.Steps[:i]))
		}
		switch {
		case dropped:
			out.own(s.Kind, s.Key, s.ownedBefore)
		case out != p:
			out.Steps = append(out.Steps, s)
		}
	}
	return out
}

// Has reports whether the plan has a step for the key of another step.
func (p *Plan) Has(s Step) bool {
	_, found := find(p.Steps, s.Kind, s.Key)
	return found
}

// Step returns the step for a key.
func (p *Plan) Step(kind keys.Kind, key string) (s Step, found bool) { return find(p.Steps, kind, key) }

// Leaves returns the step for a desired key that keeps the value of another client.
func (p *Plan) Leaves(kind keys.Kind, key string) (s Step, found bool) {
	return find(p.Left, kind, key)
}

// find returns the step for a key in a sorted list.
func find(list []Step, kind keys.Kind, key string) (s Step, found bool) {
	i, found := slices.BinarySearchFunc(list, Step{Kind: kind, Key: key}, compareSteps)
	if found {
		s = list[i]
	}
	return s, found
}

// with returns a copy of the plan that has other steps.
func (p *Plan) with(steps []Step) *Plan {
	out := *p
	out.Steps, out.owned = steps, make(map[keys.Kind]map[string]bool, len(p.owned))
	for kind, set := range p.owned {
		out.owned[kind] = maps.Clone(set)
	}
	return &out
}

// WithoutLabels returns the plan that also removes labels of other clients.
func (p *Plan) WithoutLabels(names []string) *Plan {
	if len(names) == 0 {
		return p
	}
	out := p.with(slices.Clone(p.Steps))
	for _, key := range names {
		out.Steps = append(out.Steps, Step{Kind: keys.Label, Op: Remove, Key: key, Old: p.state.Labels[key], Mark: true, Foreign: true})
	}
	slices.SortFunc(out.Steps, compareSteps)
	return out
}

// Disown returns the plan that leaves labels as they are, and removes them from the record.
func (p *Plan) Disown(labels []string) *Plan {
	out := p.Without(func(s Step) bool { return s.Kind == keys.Label && slices.Contains(labels, s.Key) })
	for _, key := range labels {
		if out.Owns(key) {
			out = out.with(append(slices.Clone(out.Steps), Step{Kind: keys.Label, Op: Forget, Key: key, Old: p.state.Labels[key], Mark: true}))
			out.own(keys.Label, key, false)
		}
	}
	slices.SortFunc(out.Steps, compareSteps)
	return out
}

// Owns reports whether the record on the Node, or the plan, lists a label.
func (p *Plan) Owns(label string) bool {
	if _, same := p.same[keys.Label][label]; same {
		return true
	}
	return p.owned[keys.Label][label] || slices.Contains(p.policy.Record.Parse(p.state.Annotations[p.policy.Record.Labels()]), label)
}

func (p *Plan) own(kind keys.Kind, key string, owned bool) {
	set := p.owned[kind]
	if set == nil {
		set = map[string]bool{}
		for same := range p.same[kind] {
			set[same] = true
		}
		p.owned[kind] = set
	}
	if owned {
		set[key] = true
	} else {
		delete(set, key)
	}
}

// mark plans one of Assay's own annotations, which exists if and only if its value is not empty.
func (p *Plan) mark(annotation, value string) {
	old, present := p.state.Annotations[annotation]
	s := Step{Kind: keys.Annotation, Key: annotation, Old: old, New: value, Mark: true}
	switch {
	case value == "" && present:
		s.Op = Remove
	case value != "" && !present:
		s.Op = Add
	case value != old:
		s.Op = Change
	default:
		return
	}
	p.Steps = append(p.Steps, s)
}

// compare plans one of the maps.
func (p *Plan) compare(kind keys.Kind, annotation string, have, want map[string]string, equal func(a, b string) bool) {
	if p.unchanged(kind, p.state.Annotations[annotation], have, want, equal) {
		p.same[kind] = want
		return
	}
	recorded := p.policy.Record.Parse(p.state.Annotations[annotation])
	owned := make(map[string]bool, max(len(recorded), len(want)))
	p.owned[kind] = owned
	for _, key := range recorded {
		key = p.policy.Record.resolve(key, have)
		if p.policy.mayOwn(kind, key) {
			owned[key] = true
		}
	}
	p.Steps = slices.Grow(p.Steps, max(0, len(want)-len(owned))) // those of a new node
	for key, value := range want {
		old, present := have[key]
		ours := owned[key]
		s := Step{Kind: kind, Key: key, Old: old, New: value, Foreign: present && !ours, ownedBefore: ours}
		switch {
		case s.Foreign && p.policy.KeepForeign:
			if !equal(old, value) {
				s.Op = Change
			}
			p.Left = append(p.Left, s)
			continue
		case !present:
			s.Op = Add
		case !equal(old, value):
			s.Op = Change
			s.grows = kind == keys.Resource && p.grows(key, value)
		case !ours:
			s.Op = Adopt
		}
		if !ours {
			owned[key] = true
		}
		if s.Op != "" {
			p.Steps = append(p.Steps, s)
		}
	}
	for key := range owned {
		if _, wanted := want[key]; wanted {
			continue
		}
		old, present := have[key]
		s := Step{Kind: kind, Op: Remove, Key: key, Old: old, ownedBefore: true}
		if !present {
			s.Op = Forget
		}
		p.Steps = append(p.Steps, s)
		delete(owned, key)
	}
}

// unchanged reports whether a record lists exactly the wanted keys, in the form in which it is written, and all have the wanted values. Most
// nodes are unchanged in most passes, so it allocates nothing.
func (p *Plan) unchanged(kind keys.Kind, record string, have, want map[string]string, equal func(a, b string) bool) bool {
	for key, value := range want {
		if old, present := have[key]; !present || !equal(old, value) || !p.policy.mayOwn(kind, key) {
			return false
		}
	}
	listed, last := 0, ""
	var room [128]byte // for most names
	for name := range strings.SplitSeq(record, ",") {
		if name <= last { // also if it is empty
			return false
		}
		full := room[:0]
		switch {
		case p.policy.Record.Bare:
		case !strings.Contains(name, "/"):
			full = append(full, defaultPrefix...)
		case strings.HasPrefix(name, defaultPrefix):
			return false // it may be written without
		}
		if _, wanted := want[string(append(full, name...))]; !wanted {
			return false
		}
		listed, last = listed+1, name
	}
	return listed == len(want)
}

// resources returns the capacity and the allocatable amount of each extended resource as one string, because both must have the
// desired value.
func resources(state State) map[string]string {
	out := make(map[string]string, len(state.Capacity))
	for name, capacity := range state.Capacity {
		allocatable, ok := state.Allocatable[name]
		if !ok || allocatable.Cmp(capacity) != 0 {
			out[string(name)] = allocatable.String() + " of " + capacity.String()
			continue
		}
		out[string(name)] = capacity.String()
	}
	for name, allocatable := range state.Allocatable {
		if _, ok := state.Capacity[name]; !ok {
			out[string(name)] = allocatable.String() + " of nothing"
		}
	}
	return out
}

// grows reports whether neither the capacity nor the allocatable amount of a resource shrinks.
func (p *Plan) grows(key, amount string) bool {
	want, err := resource.ParseQuantity(amount)
	capacity, allocatable := p.state.Capacity[corev1.ResourceName(key)], p.state.Allocatable[corev1.ResourceName(key)]
	return err == nil && want.Cmp(capacity) >= 0 && want.Cmp(allocatable) >= 0
}

func equalText(a, b string) bool { return a == b }

// equalQuantity reports whether two quantities are equal even if they are written differently, such as 1k and 1000.
func equalQuantity(a, b string) bool {
	qa, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	qb, err := resource.ParseQuantity(b)
	return err == nil && qa.Cmp(qb) == 0
}

var order = map[keys.Kind]int{keys.Label: 0, keys.Annotation: 1, keys.Resource: 2, keys.Condition: 3, keys.Taint: 4}

func compareSteps(a, b Step) int {
	if a.Kind == b.Kind {
		return cmp.Compare(a.Key, b.Key)
	}
	return cmp.Compare(order[a.Kind], order[b.Kind])
}
