// Package machine reads the features of this machine, as the worker would.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
)

// FeaturesDir is the directory for features from administrators, which the worker reads.
const FeaturesDir = "etc/kubernetes/node-feature-discovery/features.d"

// machineTimeout is the default of how long a command waits for this machine. A discovery takes about 20 ms; a machine that takes seconds
// is busy, or a disk or the firmware of a device does not respond.
const machineTimeout = time.Minute

// Flags select how this machine is read. The zero value waits for machineTimeout.
type Flags struct {
	timeout time.Duration
	flag    bool // the command has the flag
}

// AddFlags adds --timeout.
func (f *Flags) AddFlags(flags *pflag.FlagSet) {
	f.flag = true
	flags.DurationVar(&f.timeout, "timeout", machineTimeout, "maximum time to read this machine; after it the command exits with 1")
}

// Sources returns the sources that commands read.
func Sources() []discovery.Source {
	return append(builtin.Sources(builtin.DefaultConfig()), local.New(local.Config{Directory: FeaturesDir}))
}

// Read discovers the features of this machine.
func (f *Flags) Read(cmd *cobra.Command, node string) (name string, report *discovery.Report, err error) {
	h := host.Real(host.Paths{NodeName: node})
	report, err = f.Discover(cmd.Context(), h, cmd.ErrOrStderr(), cmd.ErrOrStderr())
	return h.System.NodeName(), report, err
}

// Discover discovers the features of a host.
func (f *Flags) Discover(ctx context.Context, h host.Host, progress, notes io.Writer) (*discovery.Report, error) {
	return f.Complete(ctx, discovery.NewRunner(h, Sources(), discovery.Everything), progress, notes)
}

// Complete runs all sources and waits until each has answered. It prints to progress which source takes long, and to notes what could not
// be read. A command that reads the machine once must not leave a slow source out: its devices would seem to be absent.
func (f *Flags) Complete(ctx context.Context, runner *discovery.Runner, progress, notes io.Writer) (*discovery.Report, error) {
	limit, hint := machineTimeout, ""
	if f.flag {
		limit, hint = f.timeout, "; --timeout sets another limit"
	}
	if limit <= 0 {
		return nil, fmt.Errorf("invalid --timeout %s: use for example 90s", limit)
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("did not answer within %s%s", limit, hint))
	defer cancel()
	report, err := runner.Complete(limited, func(source string) {
		fmt.Fprintf(progress, "Waiting for source %s…\n", source)
	})
	switch {
	case ctx.Err() != nil: // interrupted
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, cli.Found(err)
	}
	printUnread(notes, report)
	return report, nil
}

// Input returns the input of rules for this machine, as if its worker published the report.
func Input(policy offline.Policy, node string, report *discovery.Report) rules.Input {
	list := []offline.Published{offline.Local(policy, node, &report.Features, report.Labels)}
	return offline.New(policy, offline.Objects{Published: list}).Input(node)
}

// maxDenied is the maximum number of files that the note about missing privileges names.
const maxDenied = 3

// printUnread prints what a discovery could not read. It prints a missing privilege only once.
func printUnread(w io.Writer, report *discovery.Report) {
	var denied []string
	for _, p := range report.Problems {
		var file *fs.PathError
		if errors.Is(p.Err, os.ErrPermission) && errors.As(p.Err, &file) {
			denied = append(denied, clip.Printable(file.Path))
			continue
		}
		fmt.Fprintln(w, "note:", clip.Printable(p.String()))
	}
	if len(denied) > 0 {
		slices.Sort(denied)
		names := denied[:min(len(denied), maxDenied)]
		if len(names) < len(denied) {
			names = append(slices.Clip(names), "…")
		}
		fmt.Fprintf(w, "note: only root can read %s; the worker, which runs as user 65532, cannot either: %s\n",
			clip.Count(len(denied), "file"), strings.Join(names, ", "))
	}
}
