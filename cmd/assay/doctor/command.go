package doctor

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/clip"
)

// NewCommand returns assay doctor.
func NewCommand() *cobra.Command {
	f := &cluster.Flags{}
	output, all, watch, wait := "", false, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation of Assay, and show how to fix its problems",
		Long: `Check an installation of Assay, and show how to fix its problems.

It finds installations in all namespaces by the label app.kubernetes.io/part-of=assay, and checks:

  the CustomResourceDefinitions: whether they are of this version
  the ServiceAccounts: whether they have the rights that they need, by SubjectAccessReviews, and the admission policies that limit them
  the Deployments: replicas that are ready, pods that are not, and why
  the configurations in ConfigMaps: whether worker and controller would start with them
  the controller: whether a replica holds its Lease and renews it
  the workers: whether one runs on every Node and publishes features, and whether the Nodes are ready for pods that need features
  the webhook: its configurations, their CA, and its answer to a dry run of an invalid rule
  keys of Nodes that flap, that another client keeps changing, or that the API server rejects
  the Nodes: whether each of a sample has what its rules give, or the controller reports why not (--all compares all Nodes)
  rules, groups, templates, baselines, shapes, requests and policies: rejected, failing, conflicting, withheld by a setting such as disabled taints
  pods that wait for a scheduler that does not run, or that does not check the features they require, or for labels that no Node has
  NodeResourceTopologies, if they are published: their definition, other publishers, and nodes on which the scheduler would place no pods

The first line is the most important finding: errors, then warnings, then what is well. With --wait it repeats the checks until
they find no problem, for example after helm upgrade in a pipeline. It changes nothing.

Exit codes: 0 no problems; 1 errors or warnings were found; 2 the cluster could not be read.`,
		Example: `  assay doctor
  assay doctor --context prod --assay-namespace features
  assay doctor --all
  assay doctor --wait 5m
  assay doctor -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Connect()
			if err != nil {
				return err
			}
			nodes := &nodeCheck{flags: world.Options{Flags: *f}, all: all}
			if watch {
				return cli.Repeated(cmd, true, func() error {
					found, err := Examine(cmd.Context(), c, f.AssayNamespace, nodes.examine)
					if err != nil {
						return err
					}
					return printExamination(cmd.OutOrStdout(), output, found)
				})
			}
			found, err := examineUntil(cmd, wait, func() ([]Finding, error) {
				return Examine(cmd.Context(), c, f.AssayNamespace, nodes.examine)
			})
			if err != nil {
				return err
			}
			return printExamination(cmd.OutOrStdout(), output, found)
		},
	}
	f.Register(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, fmt.Sprintf("compare all Nodes with an evaluation of their rules, not a random sample of %d", sampledNodes))
	cmd.Flags().DurationVar(&wait, "wait", 0, "repeat the checks until they find no problem, for at most this long")
	cli.WatchFlag(cmd, &watch, "all findings")
	cmd.MarkFlagsMutuallyExclusive("watch", "wait")
	printer.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}

// examineAgain is the time between two examinations with --wait. One takes a few dozen requests.
const examineAgain = 2 * time.Second

// examineUntil repeats an examination until it finds no problem or the time is over, and returns the last findings. It prints the most
// important problem when it changes.
func examineUntil(cmd *cobra.Command, wait time.Duration, examine func() ([]Finding, error)) ([]Finding, error) {
	end, shown := time.Now().Add(wait), ""
	for {
		found, err := examine()
		healthy := err == nil && (len(found) == 0 || found[0].Level == OK)
		if wait == 0 || healthy || time.Now().Add(examineAgain).After(end) {
			return found, err
		}
		var text string
		if err != nil {
			text = err.Error()
		} else {
			text = found[0].Message
		}
		if text != shown {
			fmt.Fprintln(cmd.ErrOrStderr(), "waiting:", clip.Printable(text))
			shown = text
		}
		select {
		case <-cmd.Context().Done():
			return nil, cmd.Context().Err()
		case <-time.After(examineAgain):
		}
	}
}

// examined is the result of doctor as JSON.
type examined struct {
	Healthy  bool      `json:"healthy"`
	Findings []Finding `json:"findings"`
}

func printExamination(w io.Writer, format string, list []Finding) error {
	all := examined{Healthy: true, Findings: list}
	for _, f := range list {
		all.Healthy = all.Healthy && f.Level == OK
	}
	if format != "text" {
		if err := printer.Object(w, format, all); err != nil {
			return err
		}
	} else {
		printCheckup(w, list)
	}
	if !all.Healthy {
		return cli.ErrFound
	}
	return nil
}

// printCheckup prints one line per finding, followed by the fix.
func printCheckup(w io.Writer, list []Finding) {
	s := printer.StyleOf(w)
	for _, f := range list {
		mark := s.Good("ok  ")
		switch f.Level {
		case Warning:
			mark = s.Warn("WARN")
		case Error:
			mark = s.Bad("BAD ")
		}
		fmt.Fprintln(w, mark, clip.Printable(strings.ReplaceAll(f.Message, "\n", " ")))
		if f.Fix != "" {
			fmt.Fprintln(w, "     ", clip.Printable(f.Fix))
		}
	}
}
