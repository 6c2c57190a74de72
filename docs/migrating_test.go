package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// shownBy matches the comment that names what shows that a row is true.
var shownBy = regexp.MustCompile(`<!-- shown by: .+ -->`)

// TestEveryRowNamesWhatShowsIt reads the tables and lists that compare Assay with NFD: each must name the test that shows it, or
// say why there is none. TestLinks checks that the tests exist.
func TestEveryRowNamesWhatShowsIt(t *testing.T) {
	_, strict, _ := strings.Cut(read(t, "migrating-from-nfd.md"), "\n## The strict switch\n")
	strict, _, _ = strings.Cut(strict, "\n## ")
	_, tables, _ := strings.Cut(read(t, "nfd-differences.md"), "\n## ")
	rows, before := 0, ""
	for line := range strings.Lines(strict + "\n" + tables) {
		header := before == "" && strings.HasPrefix(line, "|")
		before = strings.TrimSpace(line)
		if header || strings.HasPrefix(line, "|---") || !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "- ") {
			continue
		}
		rows++
		if !shownBy.MatchString(line) {
			t.Errorf("nothing shows this: %s", line)
		}
	}
	if rows < 220 {
		t.Errorf("only %d rows were found", rows)
	}
}
