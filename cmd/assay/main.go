// Command assay is for the person who writes rules, the one who wonders about a node, and the CI job. It uses the packages
// that run in the cluster, so its answers are the cluster's. Installed as kubectl-assay it is `kubectl assay`.
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

	"github.com/assay-project/assay/cmd/assay/convert"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/rules/manifest"
)

// The exit codes, which scripts and CI jobs may rely on.
const (
	exitFound = 1 // negative result: errors were found, a test failed, a rule could not be evaluated
	exitUsage = 2 // the command could not run: an invalid flag or argument, an unreadable file, no cluster
)

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := newCommand(programName(args[0]))
	cmd.SetArgs(args[1:])
	return exitCode(cmd.ExecuteContext(ctx))
}

// programName is how users call the program: kubectl looks for plugins by their file's name.
func programName(file string) string {
	if strings.HasPrefix(filepath.Base(file), "kubectl-") {
		return "kubectl assay"
	}
	return "assay"
}

// foundError ends a command whose answer is no. It was printed already.
type foundError struct{ error }

// errFound is a foundError that says no more than was said.
var errFound = foundError{}

func exitCode(err error) int {
	var found foundError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		if found.error != nil {
			fmt.Fprintln(os.Stderr, "assay:", found.error)
		}
		return exitFound
	}
	fmt.Fprintln(os.Stderr, "assay:", err)
	return exitUsage
}

// newCommand lists the verbs.
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
	cmd.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write rules:"},
		&cobra.Group{ID: groupLook, Title: "Look at nodes:"},
		&cobra.Group{ID: groupCluster, Title: "Ask the cluster:"},
	)
	add(cmd, groupWrite, newLint(), newEval(), newTest(), newExpr(), newTemplate(), newLibrary(), newSchema(), convert.NewCommand())
	add(cmd, groupLook, newScan(), newCapture(), newUI())
	add(cmd, groupCluster, newRules(), newExplain(), newNodes(), newFeatures(), newDiff(), newMigrate(),
		newWhy(), newSchedulerConfig(), newDoctor())
	cmd.AddCommand(newVersion(), newDocs(), newOptions())
	groupFlags(cmd)
	explainArguments(cmd)
	explainVerbs(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	return cmd
}

const (
	groupWrite   = "write"
	groupLook    = "look"
	groupCluster = "cluster"
)

func add(root *cobra.Command, group string, list ...*cobra.Command) {
	for _, c := range list {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// explainVerbs makes an unknown verb or sub-verb an error with a suggestion; without any, the help is printed.
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
		case len(args) == 0:
			return cmd.Help()
		case run != nil:
			return run(cmd, args)
		}
		return unknownVerb(cmd, args[0])
	}
}

func unknownVerb(cmd *cobra.Command, verb string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	hint := "; see " + cmd.CommandPath() + " --help"
	if near := manifest.Nearest(verb, known); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("unknown command %q for %s%s", verb, cmd.CommandPath(), hint)
}

// explainArguments makes errors about the number of arguments say what is wanted.
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
				return fmt.Errorf("found %s; want %s", plural(len(args), "argument"), cmd.UseLine())
			}
			return err
		}
	}
}
