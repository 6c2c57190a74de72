// Command assay checks, tests and explains rules and shows the features of nodes. It uses the same packages as the components in
// the cluster, so that its results are the same. Installed as kubectl-assay, it is a kubectl plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-project/assay/cmd/assay/baseline"
	"github.com/assay-project/assay/cmd/assay/capture"
	"github.com/assay-project/assay/cmd/assay/convert"
	"github.com/assay-project/assay/cmd/assay/diff"
	"github.com/assay-project/assay/cmd/assay/doctor"
	"github.com/assay-project/assay/cmd/assay/eval"
	"github.com/assay-project/assay/cmd/assay/explain"
	"github.com/assay-project/assay/cmd/assay/export"
	"github.com/assay-project/assay/cmd/assay/features"
	"github.com/assay-project/assay/cmd/assay/image"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/library"
	"github.com/assay-project/assay/cmd/assay/lint"
	"github.com/assay-project/assay/cmd/assay/migrate"
	"github.com/assay-project/assay/cmd/assay/nodes"
	"github.com/assay-project/assay/cmd/assay/request"
	"github.com/assay-project/assay/cmd/assay/rules"
	"github.com/assay-project/assay/cmd/assay/scan"
	"github.com/assay-project/assay/cmd/assay/schedulerconfig"
	"github.com/assay-project/assay/cmd/assay/schema"
	"github.com/assay-project/assay/cmd/assay/template"
	"github.com/assay-project/assay/cmd/assay/test"
	"github.com/assay-project/assay/cmd/assay/topology"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/cmd/assay/why"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/garbage"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
)

func main() { os.Exit(run(os.Args)) }

// The GOGC values of a small and of a huge heap. Most commands are done before there is more garbage than memory to spare: collecting it is
// a third of the CPU time of assay lint. A huge heap has what Go's default is, because the objects of a large cluster are there only once.
const smallGCPercent, hugeGCPercent = 800, 100

func run(args []string) int {
	garbage.Limit(smallGCPercent, hugeGCPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := newCommand(programName(args[0]))
	cmd.SetArgs(args[1:])
	return exitCode(cmd.ExecuteContext(ctx))
}

// programName returns the name with which users call the program. kubectl finds plugins by their file name.
func programName(file string) string {
	if strings.HasPrefix(filepath.Base(file), "kubectl-") {
		return "kubectl assay"
	}
	return "assay"
}

func exitCode(err error) int {
	var found cli.FoundError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		if found.Err != nil {
			fmt.Fprintln(os.Stderr, "assay:", found.Err)
		}
		return cli.ExitFound
	}
	fmt.Fprintln(os.Stderr, "assay:", err)
	return cli.ExitUsage
}

// newCommand returns the root command with all subcommands.
func newCommand(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "assay",
		Short: "Show the features of nodes and the results of rules",
		Long: `Show the features of nodes and the results of rules.

Exit codes: 0 success; 1 negative result (errors found, a test failed, a rule could not be evaluated); 2 the command could not run
(an invalid flag or argument, a file that cannot be read, a cluster that does not answer).`,
		Version:       build.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
	}
	cmd.AddGroup(&cobra.Group{ID: groupFirst, Title: "Commands:"}, &cobra.Group{ID: groupMore, Title: "More commands:"})
	add(cmd, groupFirst,
		lint.NewCommand(), eval.NewCommand(), diff.NewCommand(),
		nodes.NewCommand(), explain.NewCommand(), why.NewCommand(), doctor.NewCommand(), ui.NewCommand(doctor.WorkerFaults))
	add(cmd, groupMore,
		test.NewCommand(), eval.NewExprCommand(), template.NewCommand(), library.NewCommand(), schema.NewCommand(), convert.NewCommand(),
		scan.NewCommand(), capture.NewCommand(),
		rules.NewCommand(), features.NewCommand(), migrate.NewCommand(), topology.NewCommand(), request.NewCommand(),
		schedulerconfig.NewCommand(), export.NewCommand(), baseline.NewCommand(),
		image.NewCommand(), image.NewCompatCommand())
	cmd.AddCommand(newVersion(), newDocs(), newOptions())
	groupFlags(cmd)
	explainArguments(cmd)
	cmd.InitDefaultCompletionCmd()
	explainVerbs(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); len(args) > 0 && cmd.HasSubCommands() && cmd.Annotations[cli.RunsAlone] == "" {
			return cli.UnknownVerb(cmd, args[0]) // the flag may be one of that verb, as in apply -f
		}
		return fmt.Errorf("%w%s", err, hintForFlag(cmd, err))
	})
	return cmd
}

// hintForFlag returns which flag may be meant instead of an unknown one.
func hintForFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := manifest.Nearest(unknown.GetSpecifiedName(), known); near != "" {
			return "; did you mean --" + near + "?"
		}
	}
	return fmt.Sprintf("; see %s --help", cmd.CommandPath())
}

// The help shows first what most users need: to write a rule, and to see what it does.
const (
	groupFirst = "first"
	groupMore  = "more"
)

func add(root *cobra.Command, group string, list ...*cobra.Command) {
	for _, c := range list {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// explainVerbs returns an error with a suggestion for an unknown subcommand. Without a subcommand, it prints the help.
func explainVerbs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainVerbs(c)
	}
	if !cmd.HasSubCommands() {
		return
	}
	run := cmd.RunE
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Annotations[cli.RunsAlone] != "":
			return run(cmd, args)
		case len(args) == 0:
			return cmd.Help()
		}
		return cli.UnknownVerb(cmd, args[0])
	}
}

// explainArguments adds the expected arguments to errors about the number of arguments.
func explainArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explainArguments(c)
		validate := c.Args
		if validate == nil {
			continue
		}
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := validate(cmd, args)
			if err != nil && strings.Contains(err.Error(), "arg(s)") {
				return fmt.Errorf("found %s; want %s", clip.Count(len(args), "argument"), cmd.UseLine())
			}
			return err
		}
	}
}
