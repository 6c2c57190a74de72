package expr

import (
	"strings"
	"testing"
)

func TestEveryReservedNameIsDescribed(t *testing.T) {
	var all strings.Builder
	for _, doc := range NameDocs() {
		all.WriteString(doc.Name + " " + doc.Says + "\n")
	}
	for _, name := range reserved {
		if !strings.Contains(all.String(), name) {
			t.Errorf("%s is in no description", name)
		}
	}
}
