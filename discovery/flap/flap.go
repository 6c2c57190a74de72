// Package flap suppresses features that change again and again, so that a flapping link is not a flapping label.
package flap

import (
	"slices"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// Changes is how many changes of one element within a Window are let through; the first is thus immediate, and so is an
	// element that goes and comes back. Those that follow are held.
	Changes = 3
	// Window is the time in which changes count, and how long an element that is held must stay as it is to be let through.
	Window = time.Minute
	// maxTracked bounds the elements whose changes are counted. A node where so many change within a minute has other
	// problems; what is not tracked is let through.
	maxTracked = 1024
)

// Damper lets content through but for elements that flap: those keep the value that was let through last, until they have
// been quiet for a Window. An element is a label, a flag, an attribute, a device that is there or not, or an attribute of a
// device that has a name. The zero value is ready for use. It is not safe for concurrent use.
type Damper struct {
	found   nfdv1alpha1.NodeFeatureSpec
	passed  nfdv1alpha1.NodeFeatureSpec
	started bool
	history map[element]*history
}

// element names one thing that can change by itself.
type element struct {
	kind          kind
	feature, name string
	// attribute is that of an instance; empty is whether the instance is there.
	attribute string
}

type kind int

const (
	label kind = iota
	flag
	attribute
	instance
)

func (e element) String() string {
	switch {
	case e.kind == label:
		return "label " + e.name
	case e.attribute != "":
		return e.feature + " " + e.name + " " + e.attribute
	}
	return e.feature + " " + e.name
}

// history is when an element changed.
type history struct {
	changes []time.Time // within the last Window, at most Changes and one more
	held    bool
}

func (h *history) last() time.Time { return h.changes[len(h.changes)-1] }

// Apply returns what to publish of what was found, and how long until something that is held may be let through; 0 if
// nothing is held. Neither what is given nor what is returned must be modified.
func (d *Damper) Apply(now time.Time, found nfdv1alpha1.NodeFeatureSpec) (nfdv1alpha1.NodeFeatureSpec, time.Duration) {
	if d.started {
		compare(&d.found, &found, func(e element) { d.changed(e, now) })
	}
	d.started, d.found = true, found
	wait := time.Duration(0)
	out := editor{spec: found}
	for e, h := range d.history {
		quiet := now.Sub(h.last())
		switch {
		case quiet >= Window:
			delete(d.history, e)
		case h.held:
			out.keep(e, &d.passed)
			if left := Window - quiet; wait == 0 || left < wait {
				wait = left
			}
		}
	}
	d.passed = out.spec
	return d.passed, wait
}

// Held are the elements that are held back, sorted.
func (d *Damper) Held() []string {
	var names []string
	for e, h := range d.history {
		if h.held {
			names = append(names, e.String())
		}
	}
	slices.Sort(names)
	return names
}

func (d *Damper) changed(e element, now time.Time) {
	h, ok := d.history[e]
	if !ok {
		if len(d.history) >= maxTracked {
			return
		}
		if d.history == nil {
			d.history = map[element]*history{}
		}
		h = &history{}
		d.history[e] = h
	}
	h.changes = slices.DeleteFunc(append(h.changes, now), func(t time.Time) bool { return now.Sub(t) >= Window })
	if len(h.changes) > Changes {
		h.held = true
		h.changes = h.changes[len(h.changes)-Changes-1:]
	}
}
