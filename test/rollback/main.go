//go:build linux

// Command rollback upgrades Assay from one version to another and rolls it back, twice, with real workers and a watch on every Node. No key that
// both versions give a node may vanish from it at any time.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// options are the flags.
type options struct {
	from, to string // directories of assay-manager and assay-worker
	nodes    int
	out      io.Writer
}

// defaultNodes is the number of nodes: each has a worker, which takes 20 MB.
const defaultNodes = 8

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.from, "from", "", "`directory` of assay-manager and assay-worker of the older version")
	flag.StringVar(&o.to, "to", "bin", "`directory` of those of the newer version")
	flag.IntVar(&o.nodes, "nodes", defaultNodes, "`number` of nodes")
	flag.Parse()
	if flag.NArg() > 0 || o.from == "" || o.nodes < 1 {
		fmt.Fprintln(os.Stderr, "rollback: invalid arguments: use -from DIRECTORY, -to DIRECTORY and -nodes NUMBER")
		os.Exit(2)
	}
	cluster.Main("rollback", o.onCluster)
}

// onCluster runs on a new control plane.
func (o options) onCluster(ctx context.Context) error {
	return stage.Run(ctx, "", stage.Core, func(c *cluster.Cluster) error { return o.run(ctx, c, filepath.Join(c.Dir(), "workers")) })
}
