package rulestats

import (
	"fmt"
	"testing"
)

// TestAConflictOverATaintIsListed: a status lists ten conflicts, and those over labels came first in the alphabet.
func TestAConflictOverATaintIsListed(t *testing.T) {
	const taint = "taint example.com/z:NoSchedule: rule a keeps it, rule b loses it"
	c := &counts{conflicts: map[string]int{taint: 1}}
	for i := range 2 * maxConflicts {
		c.conflicts[fmt.Sprintf("label example.com/l%02d: rule a keeps it, rule b loses it", i)] = 1
	}
	s := New(func(string) {})
	s.objects["o"] = c
	if got := s.Summary("o"); got.Conflicts[0] != taint || got.MoreConflicts != maxConflicts+1 {
		t.Errorf("%d more than %q", got.MoreConflicts, got.Conflicts)
	}
}
