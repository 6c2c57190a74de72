package publish

import "testing"

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
