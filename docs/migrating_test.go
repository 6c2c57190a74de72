package docs_test

import (
	"strings"
	"testing"
)

// TestEveryRowNamesWhatShowsIt reads the tables that compare Assay with NFD: a row without a test, or without a word why there
// is none, is a claim that nobody checks.
func TestEveryRowNamesWhatShowsIt(t *testing.T) {
	rows, table := 0, false
	for line := range strings.Lines(read(t, "migrating-from-nfd.md")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			table = false
			continue
		}
		if strings.HasSuffix(line, "| shown by |") {
			table = true
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " |")
		if !table || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		if strings.TrimSpace(cells[len(cells)-1]) == "" || strings.HasSuffix(line, "| |") {
			t.Errorf("nothing shows this: %s", line)
		}
	}
	if rows < 120 {
		t.Errorf("there are %d rows; is the last column still called \"shown by\"?", rows)
	}
}
