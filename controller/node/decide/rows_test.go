package decide

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the decisions of testdata/passes.jsonl again")

// minRows is the minimum number of passes of the simulator in the file.
const minRows = 100

// TestDecisionsOfSimulatedPasses decides again about passes of simulated controllers, of which no two are of one kind. hack/decisions
// writes the file.
func TestDecisionsOfSimulatedPasses(t *testing.T) {
	const file = "testdata/passes.jsonl"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	count := 0
	for line := range strings.Lines(string(data)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		count++
		p := r.pass()
		got, want := newRowDecision(p, Decide(p)), r.Decision
		t.Run(r.Name, func(t *testing.T) {
			if diff := cmp.Diff(indented(t, want), indented(t, got)); diff != "" && !*update {
				t.Errorf("the decision differs (-want +got):\n%s", diff)
			}
		})
		r.Decision = got
		out.WriteString(text(r) + "\n")
	}
	if count < minRows {
		t.Errorf("%d passes, want at least %d", count, minRows)
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func indented(t *testing.T, d rowDecision) string {
	t.Helper()
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestADecisionDoesNotChangeItsPass decides twice about each pass: maps in it must be as before.
func TestADecisionDoesNotChangeItsPass(t *testing.T) {
	data, err := os.ReadFile("testdata/passes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		before := text(r)
		p := r.pass()
		first := newRowDecision(p, Decide(p))
		if after := text(r); after != before {
			t.Errorf("%s: the pass has changed: %s", r.Name, cmp.Diff(before, after))
		}
		if second := newRowDecision(p, Decide(p)); text(second) != text(first) {
			t.Errorf("%s: the second decision differs: %s", r.Name, cmp.Diff(text(first), text(second)))
		}
	}
}
