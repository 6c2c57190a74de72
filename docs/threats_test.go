package docs_test

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// row begins a row of a table that is about one thing, or about several.
var row = regexp.MustCompile(`(?m)^\| (\d+)(?:–(\d+))? \|.*\|([^|]*)\|$`)

// TestEveryThreatNamesWhatShowsIt counts through the tables: a threat or an input that no test covers must not be left out of them.
// TestLinks looks whether the tests are there.
func TestEveryThreatNamesWhatShowsIt(t *testing.T) {
	page := read(t, "design/threats.md")
	_, page, _ = strings.Cut(page, "\n## Threats\n")
	threats, rest, _ := strings.Cut(page, "\n## Failures\n")
	failures, inputs, ok := strings.Cut(rest, "\n## Hostile input\n")
	if !ok {
		t.Fatal("the page has other headings")
	}
	for name, tc := range map[string]struct {
		text string
		last int
		not  []int // the page says in words why there is no row
	}{
		"threat": {threats, 21, nil}, "failure": {failures, 24, []int{4, 7, 23}}, "input": {inputs, 90, nil},
	} {
		want := map[int]bool{}
		for i := range tc.last {
			want[i+1] = true
		}
		for _, i := range tc.not {
			delete(want, i)
		}
		got := map[int]bool{}
		for _, match := range row.FindAllStringSubmatch(tc.text, -1) {
			from, _ := strconv.Atoi(match[1])
			to, err := strconv.Atoi(match[2])
			if err != nil {
				to = from
			}
			for i := from; i <= to; i++ {
				if got[i] {
					t.Errorf("%s %d is there twice", name, i)
				}
				got[i] = true
			}
			if !strings.Contains(match[3], "](") {
				t.Errorf("nothing shows %s %s", name, match[1])
			}
		}
		if !maps.Equal(want, got) {
			t.Errorf("%s: want rows %s, got %s", name, fmt.Sprint(want), fmt.Sprint(got))
		}
	}
}
