// Package library is the verb library: it lists, shows, tests and applies the ready rules.
package library

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/suites"
	"github.com/assay-project/assay/library"
	"github.com/assay-project/assay/rules/suite"
)

// NewCommand returns assay library.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "library",
		Short: "List, show, test and apply ready rules for common hardware",
		Long: `List, show, test and apply ready rules for common hardware: GPUs, accelerators, network adapters, CPU features, USB devices.

The rules are part of this program and need no network access.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLibraryList(), newLibraryShow(), newLibraryTest(), newLibraryApply())
	return cmd
}

func newLibraryList() *cobra.Command {
	var group, output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules of the library",
		Example: `  assay library list
  assay library list --group network -o name`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listLibrary(cmd, group, output) },
	}
	cmd.Flags().StringVar(&group, "group", "", "list only this group, for example gpu or network")
	printer.OutputFlag(cmd, &output, "table", "wide", "name", "json", "yaml")
	return cmd
}

func listLibrary(cmd *cobra.Command, group, output string) error {
	all, err := library.Entries()
	if err != nil {
		return err
	}
	if group != "" {
		groups := libraryGroups(all)
		if !slices.Contains(groups, group) {
			return fmt.Errorf("invalid --group %q: use one of %s", group, strings.Join(groups, ", "))
		}
		all = slices.DeleteFunc(slices.Clone(all), func(e *library.Entry) bool { return e.Group != group })
	}
	w := cmd.OutOrStdout()
	switch output {
	case "json", "yaml":
		return printer.Object(w, output, all)
	case "name":
		for _, e := range all {
			fmt.Fprintln(w, e.ID)
		}
		return nil
	}
	rows := &printer.Table{}
	header := []string{"GROUP", "ID", "DESCRIPTION"}
	if output == "wide" {
		header = []string{"GROUP", "ID", "LABELS", "DESCRIPTION"}
	}
	rows.Add(header...)
	for _, e := range all {
		row := []string{e.Group, e.ID, firstSentence(e.Description)}
		if output == "wide" {
			row = []string{e.Group, e.ID, strings.Join(e.Labels, ","), e.Description}
		}
		rows.Add(row...)
	}
	rows.Print(w, "")
	return nil
}

func libraryGroups(all []*library.Entry) (groups []string) {
	for _, e := range all {
		groups = append(groups, e.Group)
	}
	return slices.Compact(groups) // entries are sorted by group
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(first, ".")
}

func newLibraryShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID…",
		Short: "Print rules of the library as YAML",
		Example: `  assay library show nvidia-gpu
  assay library show coral hailo > edge.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			entries, err := library.Get(args...)
			if err != nil {
				return err
			}
			for i, e := range entries {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "---")
				}
				fmt.Fprint(cmd.OutOrStdout(), e.YAML)
			}
			return nil
		},
		ValidArgsFunction: completeLibrary,
	}
	return cmd
}

func newLibraryTest() *cobra.Command {
	f := &suites.Options{}
	cmd := &cobra.Command{
		Use:   "test [ID…]",
		Short: "Run the tests of the library",
		Example: `  assay library test
  assay library test -v nvidia-gpu`,
		RunE:              func(cmd *cobra.Command, args []string) error { return testLibrary(f, cmd, args) },
		ValidArgsFunction: completeLibrary,
	}
	cmd.Flags().BoolVarP(&f.Verbose, "verbose", "v", false, "also list the tests that passed")
	printer.OutputFlag(cmd, &f.Output, "text", "json", "junit")
	return cmd
}

// testLibrary runs the tests of the embedded files in a temporary directory.
func testLibrary(f *suites.Options, cmd *cobra.Command, ids []string) error {
	if _, err := library.Get(ids...); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "assay-library-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := library.Write(dir, ids...); err != nil {
		return err
	}
	tests, err := suite.Find(dir)
	if err != nil {
		return err
	}
	for _, t := range tests {
		t.Name = strings.TrimPrefix(t.Name, dir+string(filepath.Separator))
	}
	return f.Run(cmd, tests)
}

func newLibraryApply() *cobra.Command {
	var (
		flags         cluster.Flags
		options       cluster.ApplyOptions
		all, dryRun   bool
		prune         bool
		forceConflict bool
	)
	cmd := &cobra.Command{
		Use:   "apply ID…|--all",
		Short: "Apply rules of the library to the cluster",
		Long: `Apply rules of the library to the cluster, by server-side apply with the field manager assay-library.

Applying again updates the rules to those of this program. Each has the label app.kubernetes.io/managed-by=assay-library; --prune
deletes NodeFeatureRules with this label that are not applied now. kubectl delete nodefeaturerule ID deletes one.

With --owner the rules get the label assay.dev/library-owner, and --prune deletes only rules of this owner. Without it, --prune leaves
rules that have an owner. Releases of the chart are owners of the rules that they apply.`,
		Example: `  assay library apply nvidia-gpu rdma
  assay library apply nvidia-gpu --prune
  assay library apply nvidia-gpu --owner team-a --prune
  assay library apply --owner team-a --prune       # deletes all rules of team-a
  assay library apply --all --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			none := len(args) == 0 && prune && options.Owner != ""
			if all == (len(args) > 0) && !none || all && len(args) > 0 {
				return fmt.Errorf("pass either ids or --all; assay library list shows the ids")
			}
			if invalid := validation.IsValidLabelValue(options.Owner); len(invalid) > 0 {
				return fmt.Errorf("invalid --owner %q: %s", options.Owner, strings.Join(invalid, "; "))
			}
			var entries []*library.Entry
			var err error
			if all {
				entries, err = library.Entries()
			} else if !none {
				entries, err = library.Get(args...)
			}
			if err != nil {
				return err
			}
			options.DryRun, options.Force = dryRun, forceConflict
			return applyLibrary(cmd, &flags, entries, options, prune)
		},
		ValidArgsFunction: completeLibrary,
	}
	flags.Register(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "apply all rules of the library")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "send the changes to the API server as a dry run, which stores nothing")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete rules of the library that an earlier apply created and this one does not apply")
	cmd.Flags().StringVar(&options.Owner, "owner", "", "owner of the rules, as a label; --prune keeps the rules of other owners")
	cmd.Flags().BoolVar(&forceConflict, "force-conflicts", false, "take over fields that another field manager owns")
	return cmd
}

// maxApplies is the maximum number of rules that are applied at the same time: a few reviews of the webhook, each of which takes a core.
const maxApplies = 8

func applyLibrary(cmd *cobra.Command, flags *cluster.Flags, entries []*library.Entry, options cluster.ApplyOptions, prune bool) error {
	client, err := flags.Connect()
	if err != nil {
		return err
	}
	done := func(id, verb string) {
		if options.DryRun {
			verb += " (server dry run)"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "nodefeaturerule.nfd.k8s-sigs.io/%s %s\n", id, verb)
	}
	applied := make([]chan error, len(entries))
	places := make(chan struct{}, maxApplies)
	for i, e := range entries {
		applied[i] = make(chan error, 1)
		go func() {
			places <- struct{}{}
			applied[i] <- client.ApplyRule(cmd.Context(), e.ID, []byte(e.YAML), options)
			<-places
		}()
	}
	var ids []string
	var failed error
	for i, e := range entries {
		switch err := <-applied[i]; {
		case cluster.IsAbsentKind(err):
			return err // as for all others
		case err != nil:
			failed = errors.Join(failed, err)
			continue
		}
		done(e.ID, "serverside-applied")
		ids = append(ids, e.ID)
	}
	if !prune || failed != nil {
		return failed
	}
	deleted, err := client.PruneRules(cmd.Context(), ids, options)
	for _, id := range deleted {
		done(id, "deleted")
	}
	return err
}

func completeLibrary(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := library.Entries()
	var ids []string
	for _, e := range all {
		if !slices.Contains(args, e.ID) {
			ids = append(ids, e.ID)
		}
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
