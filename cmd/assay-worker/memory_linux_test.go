package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestForgottenCodeStillRuns calls much code again after it was given back; the pages come back with it.
func TestForgottenCodeStillRuns(t *testing.T) {
	before := fileMemory(t)
	forgetCode()
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of the program before, %d after", before, after)
	}
	if opt, err := parseFlags([]string{"-no-publish"}, os.Stderr); err != nil || opt.override.NoPublish == nil {
		t.Errorf("options %v, error %v", opt, err)
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
