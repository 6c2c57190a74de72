package assembly

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules"
)

// reasonSum is the reason of Accepted=False for an object that exceeds the maximum compiled size of the cluster's rules.
const reasonSum = "TooManyRules"

// exceed removes the rules of an object that exceeds the limit.
func (o *Object) exceed() {
	o.Excess, o.Rules, o.Good = true, Rules{}, nil
	o.Errors, o.Warnings, o.Hash, o.Origins = nil, nil, "", nil
	o.Refused = &Error{reasonSum, fmt.Sprintf(
		"all rules of a cluster may take %d bytes of memory when they are compiled, and older objects leave too little for this one; "+
			"delete objects, or use fewer values and simpler patterns", rules.MaxClusterSize)}
}

// Exceeding returns the object without its rules, which need more than room.
func (o *Object) Exceeding(room int) *Object {
	out := *o
	out.Room = room
	out.exceed()
	return &out
}

// Size returns the compiled size of an object's rules, or 0 if it has none.
func (o *Object) Size() int {
	if o == nil || o.Set == nil {
		return 0
	}
	return o.Set.Size()
}

// Sum holds the objects that share the maximum compiled size of a cluster's rules. Older objects come first, and objects of the
// same second are ordered by name, so that the result does not depend on the order of events. An object that does not fit leaves
// its room to later objects.
type Sum map[string]*Object

// RoomFor returns the compiled size that the objects before an object leave for it.
func (s Sum) RoomFor(name string, o *Object) int {
	room := rules.MaxClusterSize
	for other, before := range s {
		if other != name && compare(other, before, name, o) < 0 {
			room -= before.Size()
		}
	}
	return room
}

// Tight reports whether an object does not fit or might not fit, so that the order of the objects matters.
func (s Sum) Tight() bool {
	left := rules.MaxClusterSize
	for _, o := range s {
		if left -= o.Size(); o.Excess || left < 0 {
			return true
		}
	}
	return false
}

// Names returns the names of all objects in order.
func (s Sum) Names() []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return compare(a, s[a], b, s[b]) })
	return names
}

func compare(a string, x *Object, b string, y *Object) int {
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(a, b))
}

// OldestFirst compares objects by age, as Names does: an object that exceeds a limit after older ones is not used.
func OldestFirst(a, b metav1.Object) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
