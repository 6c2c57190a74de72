package memory_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/assay-project/assay/internal/worker/memory"
)

// TestForgottenCodeStillRuns calls code again after its pages were unmapped; they must be mapped again.
func TestForgottenCodeStillRuns(t *testing.T) {
	before := fileMemory(t)
	memory.ForgetCode()
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of the program before, %d after", before, after)
	}
	if p := regexp.MustCompile("a(b|c)+"); !p.MatchString("abc") {
		t.Errorf("%v does not match", p)
	}
}

func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Skip("the kernel does not tell")
	}
	kB, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
