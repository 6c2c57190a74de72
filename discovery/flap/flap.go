// Package flap suppresses features that change repeatedly, so that a flapping link does not cause a flapping label.
package flap

import (
	"slices"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// Changes is the number of changes of one element within a Window that are published immediately, which allows for an element
	// that disappears once and comes back. Further changes are held.
	Changes = 3
	// Window is the time over which changes are counted, and the time for which a held element must be stable before it is
	// published.
	Window = time.Minute
	// maxTracked is the maximum number of elements whose changes are counted. A node where more elements change within a minute has
	// other problems; untracked changes are published.
	maxTracked = 1024
)

// Damper publishes content except for flapping elements: these keep their last published value until they have been stable for a
// Window. An element is a label, a flag, an attribute, the presence of a device, or an attribute of a named device. The zero value
// is ready to use. It is not safe for concurrent use.
type Damper struct {
	found   nfdv1alpha1.NodeFeatureSpec
	passed  nfdv1alpha1.NodeFeatureSpec
	started bool
	history map[element]*history
}

// element identifies something that changes independently.
type element struct {
	kind          kind
	feature, name string
	// attribute of an instance; empty means the presence of the instance.
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

// history holds the times at which an element changed.
type history struct {
	changes []time.Time // within the last Window, at most Changes+1
	held    bool
}

func (h *history) last() time.Time { return h.changes[len(h.changes)-1] }

// Apply returns the content to publish for the discovered content, and the time until a held element might be released; 0 if none
// is held. The caller must modify neither.
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

// Held returns the sorted names of held elements.
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
