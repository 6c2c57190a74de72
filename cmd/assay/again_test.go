package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// changing is an output that calls a function after each write.
type changing struct {
	strings.Builder
	wrote func(n int)
	n     int
}

func (c *changing) Write(p []byte) (int, error) {
	c.n++
	defer c.wrote(c.n)
	return c.Builder.Write(p)
}

// TestNodesAreWatched: assay nodes -w prints the line of a node whose features change, and no other one again.
func TestNodesAreWatched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	write := func(major string) {
		var b strings.Builder
		for _, node := range []string{"n1", "n2"} {
			version := "6"
			if node == "n2" {
				version = major
			}
			b.WriteString("---\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeature\nmetadata: {name: " + node + ", namespace: assay-system, " +
				"labels: {nfd.node.kubernetes.io/node-name: " + node + "}}\nspec: {features: {attributes: {kernel.version: {elements: {major: '" + version + "'}}}}}\n")
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("6")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &changing{}
	out.wrote = func(n int) {
		if n == 1 {
			write("7")
		} else {
			cancel()
		}
	}
	cmd := newCommand("assay")
	cmd.SetOut(out)
	cmd.SetArgs([]string{"nodes", "-w", "-c", "kernel.version.major", "--from", file})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	want := "NODE   KERNEL.VERSION.MAJOR\nn1     6\nn2     6\nn2     7\n"
	if got := out.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
