package publish

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestAnIdentityTakesNoUIDOfAnotherObject completes the identity in a token with the identity in the worker's environment.
func TestAnIdentityTakesNoUIDOfAnotherObject(t *testing.T) {
	for name, tc := range map[string]struct{ id, other, want Identity }{
		"SameNode":     {Identity{Node: "n1"}, Identity{Node: "n1", NodeUID: "u1"}, Identity{Node: "n1", NodeUID: "u1"}},
		"OtherNode":    {Identity{Node: "n1"}, Identity{Node: "n2", NodeUID: "u2"}, Identity{Node: "n1"}},
		"UnknownNode":  {Identity{}, Identity{Node: "n2", NodeUID: "u2"}, Identity{Node: "n2", NodeUID: "u2"}},
		"OwnUID":       {Identity{Node: "n1", NodeUID: "u1"}, Identity{Node: "n1", NodeUID: "u9"}, Identity{Node: "n1", NodeUID: "u1"}},
		"SamePod":      {Identity{Pod: "p1"}, Identity{Pod: "p1", PodUID: "u1"}, Identity{Pod: "p1", PodUID: "u1"}},
		"OtherPod":     {Identity{Pod: "p1"}, Identity{Pod: "p2", PodUID: "u2"}, Identity{Pod: "p1"}},
		"UnnamedPod":   {Identity{Pod: "p1"}, Identity{PodUID: "u1"}, Identity{Pod: "p1", PodUID: "u1"}},
		"OneNamespace": {Identity{Namespace: "a"}, Identity{Namespace: "b"}, Identity{Namespace: "a"}},
	} {
		if got := tc.id.Or(tc.other); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestOwnersAreComparedAsAWhole changes one field of an owner at a time. Owners that NFD writes have neither boolean.
func TestOwnersAreComparedAsAWhole(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	for name, tc := range map[string]struct {
		change func(*metav1.OwnerReference)
		same   bool
	}{
		"Nothing":             {func(*metav1.OwnerReference) {}, true},
		"FalseIsUnset":        {func(o *metav1.OwnerReference) { o.Controller, o.BlockOwnerDeletion = new(bool), new(bool) }, true},
		"OtherVersion":        {func(o *metav1.OwnerReference) { o.APIVersion = "v2" }, false},
		"OtherKind":           {func(o *metav1.OwnerReference) { o.Kind = "Node" }, false},
		"OtherName":           {func(o *metav1.OwnerReference) { o.Name = "q" }, false},
		"OtherUID":            {func(o *metav1.OwnerReference) { o.UID = "v" }, false},
		"Controller":          {func(o *metav1.OwnerReference) { o.Controller = ptr.To(true) }, false},
		"BlocksOwnerDeletion": {func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr.To(true) }, false},
	} {
		other := owner
		tc.change(&other)
		if sameOwner(owner, other) != tc.same || sameOwner(other, owner) != tc.same {
			t.Errorf("%s: same is %t, want %t", name, !tc.same, tc.same)
		}
	}
}

// TestOnlyLaterEventsOfAKnownObjectCount tests that events before the first write, and events of the publisher's own writes, are ignored.
func TestOnlyLaterEventsOfAKnownObjectCount(t *testing.T) {
	known := metadata{uid: "u", resourceVersion: "5", generation: 2}
	for name, tc := range map[string]struct {
		live             bool
		event            metadata
		changed, deleted bool
	}{
		"NothingIsKnown":  {false, metadata{uid: "u", resourceVersion: "9", generation: 3}, false, false},
		"OwnWrite":        {true, known, false, false},
		"Earlier":         {true, metadata{uid: "u", resourceVersion: "4", generation: 3}, false, false},
		"LaterMetadata":   {true, metadata{uid: "u", resourceVersion: "6", generation: 2}, true, true},
		"LaterGeneration": {true, metadata{uid: "u", resourceVersion: "6", generation: 3}, true, true},
		"AnotherObject":   {true, metadata{uid: "v", resourceVersion: "6", generation: 2}, true, true},
	} {
		p := Publisher{}
		if tc.live {
			p.live = &object{metadata: known}
		}
		if got := p.observe(tc.event); got != tc.changed {
			t.Errorf("%s: changed %t, want %t", name, got, tc.changed)
		}
		p = Publisher{}
		if tc.live {
			p.live = &object{metadata: known}
		}
		if got := p.observeDeleted(tc.event); got != tc.deleted || p.absent != tc.deleted {
			t.Errorf("%s: deleted %t, want %t", name, got, tc.deleted)
		}
	}
}
