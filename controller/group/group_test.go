package group

import (
	"fmt"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

func TestStatusIsCutAndSaysSo(t *testing.T) {
	for count, want := range map[int]struct {
		names   int
		message string
	}{
		0: {0, ""}, maxNodes: {maxNodes, ""}, maxNodes + 1: {maxNodes, fmt.Sprintf("cut at %d names", maxNodes)},
	} {
		var members []string
		for i := range count {
			members = append(members, fmt.Sprintf("node-%05d", i))
		}
		s := status(&nfdv1alpha1.NodeFeatureGroup{}, &program{}, members, "")
		if len(s.Nodes) != want.names || *s.Count != int32(count) {
			t.Errorf("%d members: the status names %d and counts %d, want %d and all", count, len(s.Nodes), *s.Count, want.names)
		}
		if got := s.Conditions[0].Message; !strings.HasSuffix(got, want.message) || want.message == "" && got != "" {
			t.Errorf("%d members: the condition says %q, want %q", count, got, want.message)
		}
	}
}
