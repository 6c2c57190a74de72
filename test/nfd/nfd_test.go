//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDifferencesHaveRows: what this program accepts as a difference must be documented.
func TestDifferencesHaveRows(t *testing.T) {
	pages := ""
	for _, name := range []string{"migrating-from-nfd.md", "nfd-differences.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		pages += string(page)
	}
	rows := []string{nameless, emptyName}
	for _, f := range forms {
		rows = slices.Concat(rows, f.differs, f.strictly)
	}
	for _, row := range rows {
		if !strings.Contains(pages, "\n| "+row) {
			t.Errorf("no row of the pages begins with %q", row)
		}
	}
}

// TestEveryFormIsARule draws each form and its key.
func TestEveryFormIsARule(t *testing.T) {
	for seed := range uint64(50) {
		d := drawer{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // not a secret
		for i := range forms {
			rule, err := d.rule(i, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := formOf("label feature.node.kubernetes.io/" + rule.Name + "-x"); got != &forms[i] {
				t.Errorf("the key of %s is that of %v", rule.Name, got)
			}
		}
		if _, err := d.group(0); err != nil {
			t.Fatal(err)
		}
	}
}
