// Package baseline is the verb baseline: it writes NodeBaselines and says which nodes deviate from them.
package baseline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// NewCommand returns assay baseline.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "baseline",
		Short: "Write NodeBaselines, and show which nodes deviate",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBaselineInit(), newBaselineCheck(), newBaselineReport(), newBaselineLevels())
	return cmd
}

// usualBaseline is the default name of a baseline.
const usualBaseline = "nodes"

func newBaselineInit() *cobra.Command {
	f := &world.Options{}
	selector := ""
	cmd := &cobra.Command{
		Use:   "init [NAME]",
		Short: "Print a NodeBaseline of what nodes have in common",
		Long: fmt.Sprintf(`Print a NodeBaseline of what at least %d %% of the nodes have in common: kernel, BIOS and microcode, versions of drivers and firmware,
the container runtime and its handlers, numbers of CPUs and devices. Other features are not compared, because they differ on every node or
change by themselves.

Comments say in what more nodes differ, with the values and the nodes. To compare one kind of nodes, select it with -l.`, baselines.Share),
		Example: `  assay baseline init h100 -l pool=gpu > h100.yaml
  assay baseline init --from nodes.yaml,nodefeatures.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := usualBaseline
			if len(args) > 0 {
				name = args[0]
			}
			return initBaseline(f, cmd, name, selector)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.AddFlags(cmd)
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector of the nodes, KEY=VALUE,KEY=VALUE; it is the nodeSelector of the baseline")
	return cmd
}

func initBaseline(f *world.Options, cmd *cobra.Command, name, selector string) error {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("invalid name %q: %s", name, wrong[0])
	}
	wanted, err := equalities(selector)
	if err != nil {
		return err
	}
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: true, Selector: selector})
	if err != nil {
		return err
	}
	if _, err := w.Chosen(""); err != nil {
		return err
	}
	p := baselines.Propose(name, wanted, w.Fleet.BaselineNodes(false), w.Limits.Mask.Hides)
	for _, text := range p.Notes() {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", text)
	}
	switch {
	case p.Nodes == 0:
		return cli.Found(errors.New("the features of no node are known; is the worker running?"))
	case len(p.Checks) == 0:
		for i := range p.Left {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", clip.Printable(p.Left[i].String()))
		}
		return cli.Found(errors.New("the nodes have nothing in common that a baseline would require; select one kind of nodes with -l"))
	}
	_, err = io.WriteString(cmd.OutOrStdout(), p.YAML())
	return err
}

// equalities returns the labels of a selector with equalities only, as a NodeBaseline has them.
func equalities(selector string) (map[string]string, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("the label selector %q: %w", selector, err)
	}
	requirements, _ := parsed.Requirements()
	out := map[string]string{}
	for _, r := range requirements {
		if !slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) || r.Values().Len() != 1 {
			return nil, fmt.Errorf("invalid selector %q: a NodeBaseline selects nodes by equal labels only: use KEY=VALUE,KEY=VALUE", selector)
		}
		out[r.Key()] = r.Values().List()[0]
	}
	return out, nil
}

// baselineFormats are the formats of reports.
var baselineFormats = []string{"text", "json", "yaml", "junit", "markdown"}

const baselineResults = `The command decides as the controller does; see docs/baselines.md. A node whose features are unknown never deviates.`

func newBaselineCheck() *cobra.Command {
	f := &world.Options{}
	output, noHeaders := "", false
	var files []string
	cmd := &cobra.Command{
		Use:   "check -f FILE…",
		Short: "Show which nodes deviate from NodeBaselines in files",
		Long: `Show which nodes deviate from NodeBaselines in files, before they are applied or without a controller.

` + baselineResults + `

Exit codes: 0 all nodes conform; 1 nodes deviate, have no majority or are unknown, no node is selected, or a baseline has errors.`,
		Example: `  assay baseline check -f h100.yaml
  assay baseline check -f h100.yaml --from nodes.yaml,nodefeatures.yaml
  assay baseline check -f baselines/ -o junit > junit.xml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			if len(files) == 0 {
				return errors.New("no input: pass a file of NodeBaselines with -f FILE")
			}
			return checkBaselines(f, cmd, files, output, noHeaders)
		},
		ValidArgsFunction: cli.CompleteYAML,
	}
	f.AddFlags(cmd)
	cli.FilesFlag(cmd, &files, "files or directories of NodeBaselines; - for standard input")
	printer.HeadersFlag(cmd, &noHeaders)
	printer.OutputFlag(cmd, &output, baselineFormats...)
	return cmd
}

func checkBaselines(f *world.Options, cmd *cobra.Command, files []string, output string, noHeaders bool) error {
	paths, err := input.Paths(files)
	if err != nil {
		return err
	}
	var list []assayv1alpha1.NodeBaseline
	manifests := input.Manifests(paths, cmd.InOrStdin())
	for _, file := range manifests {
		for _, d := range file.Documents {
			if d.Kind == manifest.KindBaseline {
				var b assayv1alpha1.NodeBaseline
				d.Decode(&b)
				list = append(list, b)
			}
		}
	}
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: readDevices(list)})
	if err != nil {
		return err
	}
	if failed := printInvalid(w, cmd, manifests); failed {
		return cli.ErrFound
	}
	if len(list) == 0 {
		return fmt.Errorf("%s: no NodeBaselines found", strings.Join(files, ", "))
	}
	reports := judge(w, cmd.ErrOrStderr(), list)
	if err := printReports(cmd.OutOrStdout(), reports, output, noHeaders); err != nil {
		return err
	}
	if slices.ContainsFunc(reports, func(r *baselines.Report) bool { return !r.Conforms() }) {
		return cli.ErrFound
	}
	return nil
}

// printInvalid prints the errors and warnings in files of baselines as lint does, and reports whether there are errors.
func printInvalid(w *world.World, cmd *cobra.Command, files []*manifest.File) (failed bool) {
	checker := check.New(baselines.Reviewed(w), files...)
	for _, file := range files {
		for _, finding := range checker.File(file) {
			printer.Finding(cmd.ErrOrStderr(), printer.StyleOf(cmd.ErrOrStderr()), file, finding, finding.Severity == manifest.Error)
			failed = failed || finding.Severity == manifest.Error
		}
	}
	return failed
}

// readDevices reports whether baselines may read the devices of DRA drivers.
func readDevices(list []assayv1alpha1.NodeBaseline) bool {
	return slices.ContainsFunc(list, func(b assayv1alpha1.NodeBaseline) bool {
		found := review.Review(&b, review.Known{}).Baseline
		return found == nil || found.ReadsDevices()
	})
}

// judge compares the nodes with baselines. It prints which of them the controller does not accept.
func judge(w *world.World, notes io.Writer, list []assayv1alpha1.NodeBaseline) (out []*baselines.Report) {
	for i := range list {
		if found := baselines.Compile(w, notes, &list[i]); found != nil {
			out = append(out, baselines.New(list[i].Name, w.Fleet.Baseline(found)))
		}
	}
	return out
}

// printReports prints reports in a format of baselineFormats.
func printReports(w io.Writer, all []*baselines.Report, output string, noHeaders bool) error {
	switch output {
	case "junit":
		return baselines.JUnit(w, all)
	case "markdown":
		return baselines.Markdown(w, all)
	case "text":
	default:
		return printer.Object(w, output, all)
	}
	if err := printRows(w, baselines.Summary(all), noHeaders); err != nil {
		return err
	}
	found := baselines.Findings(all)
	if found == nil {
		return nil
	}
	fmt.Fprintln(w)
	return printRows(w, found, noHeaders)
}

// printRows prints a table.
func printRows(w io.Writer, rows [][]string, noHeaders bool) error {
	out := &printer.Table{}
	for _, row := range rows {
		out.Add(row...)
	}
	return out.List(w, noHeaders)
}

// forConformance is the value of --for.
const forConformance = "ai-conformance"

func newBaselineReport() *cobra.Command {
	f := &world.Options{}
	output, target, noHeaders := "", "", false
	cmd := &cobra.Command{
		Use:   "report [NAME…]",
		Short: "Report which nodes deviate from the NodeBaselines of the cluster",
		Long: `Report which nodes deviate from the NodeBaselines of the cluster, or from those that are named, with all deviations: the status of a
NodeBaseline has 50. ` + baselineResults + `

With --for ai-conformance it prints evidence for the requirement driver_runtime_management of Kubernetes AI Conformance, in Markdown: the
versions of drivers and container runtimes on each node with accelerators, the mechanism, the verdict, the time and the version of the
cluster. Save it as ` + baselines.EvidenceFile + ` next to PRODUCT.yaml. Its end, or -o yaml, is the entry for PRODUCT.yaml. The status is Implemented
only if a NodeBaseline that checks versions of drivers or container runtimes selects each of these nodes, and all of them conform.`,
		Example: `  assay baseline report
  assay baseline report h100 -o markdown
  assay baseline report -o junit > junit.xml
  assay baseline report --for ai-conformance > ` + baselines.EvidenceFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if target != "" && target != forConformance {
				return fmt.Errorf("invalid --for %q: use %s", target, forConformance)
			}
			w, list, err := loadBaselines(f, cmd, args, target != "")
			if err != nil {
				return err
			}
			if target != "" {
				if !cmd.Flags().Changed("output") {
					output = "markdown"
				}
				return conformance(w, cmd, list, output)
			}
			reports := judge(w, cmd.ErrOrStderr(), list)
			if len(reports) == 0 && output == "text" {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: no NodeBaselines found; assay baseline init writes one")
			}
			return printReports(cmd.OutOrStdout(), reports, output, noHeaders)
		},
		ValidArgsFunction: completeBaselines(f),
	}
	f.AddFlags(cmd)
	cmd.Flags().StringVar(&target, "for", "", "purpose of the report: "+forConformance)
	printer.HeadersFlag(cmd, &noHeaders)
	printer.OutputFlag(cmd, &output, baselineFormats...)
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{forConformance}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// completeBaselines completes names of NodeBaselines of the cluster.
func completeBaselines(f *world.Options) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return cli.FromCluster(&f.Flags, func(ctx context.Context, c *cluster.Client) (names []string, err error) {
			list, err := c.Baselines(ctx)
			for i := range list {
				if !slices.Contains(args, list[i].Name) {
					names = append(names, list[i].Name)
				}
			}
			return names, err
		})
	}
}

// levelsFormats are the formats of trees.
var levelsFormats = []string{"text", "dot", "json", "yaml"}

func newBaselineLevels() *cobra.Command {
	f := &world.Options{}
	output, noHeaders := "", false
	cmd := &cobra.Command{
		Use:   "levels [NAME…]",
		Short: "Show the tree that the levels of NodeBaselines make of the nodes",
		Long: `Show the tree that the levels of NodeBaselines make of the nodes, such as blocks and their racks: first the nodes that deviate and why, then
the domains with their numbers of nodes. Nodes that deviate are in no domain.`,
		Example: `  assay baseline levels fabric
  assay baseline levels fabric -o dot | dot -Tsvg > fabric.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, list, err := loadBaselines(f, cmd, args, false)
			if err != nil {
				return err
			}
			return printLevels(w, cmd, list, len(args) > 0, output, noHeaders)
		},
		ValidArgsFunction: completeBaselines(f),
	}
	f.AddFlags(cmd)
	printer.HeadersFlag(cmd, &noHeaders)
	printer.OutputFlag(cmd, &output, levelsFormats...)
	return cmd
}

// printLevels prints the trees of baselines. If baselines are named, each must have levels.
func printLevels(w *world.World, cmd *cobra.Command, list []assayv1alpha1.NodeBaseline, named bool, output string, noHeaders bool) error {
	if i := slices.IndexFunc(list, func(b assayv1alpha1.NodeBaseline) bool { return len(b.Spec.Levels) == 0 }); named && i >= 0 {
		return cli.Found(fmt.Errorf("NodeBaseline %s has no levels: write spec.levels", clip.Printable(list[i].Name)))
	}
	trees := baselines.Trees(w, cmd.ErrOrStderr(), list)
	switch output {
	case "text":
	case "dot":
		return baselines.Dot(cmd.OutOrStdout(), trees)
	default:
		return printer.Object(cmd.OutOrStdout(), output, trees)
	}
	if len(trees) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: no NodeBaselines with levels found")
	}
	for i, t := range trees {
		if i > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		fmt.Fprintln(cmd.OutOrStdout(), clip.Printable(t.Title()))
		for _, rows := range [][][]string{t.Deviants(), t.Rows()} {
			if len(rows) < 2 {
				continue
			}
			fmt.Fprintln(cmd.OutOrStdout())
			if err := printRows(cmd.OutOrStdout(), rows, noHeaders); err != nil {
				return err
			}
		}
	}
	return nil
}

// baselineKinds are names of the type in TYPE/NAME.
var baselineKinds = []string{"nodebaseline", "nodebaselines", "nbase"}

// loadBaselines reads the world with the named baselines, or all, sorted by name.
func loadBaselines(f *world.Options, cmd *cobra.Command, names []string, devices bool) (*world.World, []assayv1alpha1.NodeBaseline, error) {
	var list []assayv1alpha1.NodeBaseline
	if len(f.From) == 0 {
		c, err := f.Connect()
		if err != nil {
			return nil, nil, err
		}
		world.ReadDefinition(cmd.Context(), c, definition.Baselines, f.Notes())
		if list, err = c.Baselines(cmd.Context()); err != nil {
			return nil, nil, err
		}
	}
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: devices || readDevices(list)})
	if err != nil {
		return nil, nil, err
	}
	list = append(list, w.Baselines...)
	slices.SortFunc(list, func(a, b assayv1alpha1.NodeBaseline) int { return cmp.Compare(a.Name, b.Name) })
	if len(names) == 0 {
		return w, list, nil
	}
	var chosen []assayv1alpha1.NodeBaseline
	for _, arg := range names {
		name, err := cli.ObjectName(arg, baselineKinds...)
		if err != nil {
			return nil, nil, err
		}
		b, err := world.BaselineNamed(list, name)
		if err != nil {
			return nil, nil, err
		}
		chosen = append(chosen, *b)
	}
	return w, chosen, nil
}

// conformance prints the report for AI conformance.
func conformance(w *world.World, cmd *cobra.Command, list []assayv1alpha1.NodeBaseline, output string) error {
	if output != "markdown" && output != "yaml" {
		return fmt.Errorf("--for %s prints markdown, or with -o yaml the entry for PRODUCT.yaml", forConformance)
	}
	list = slices.DeleteFunc(list, func(b assayv1alpha1.NodeBaseline) bool {
		b.Spec.MatchFeatures = nil // what selects nodes is not checked
		found := review.Review(&b, baselines.Reviewed(w)).Baseline
		return found != nil && !baselines.Verifies(found.Reads())
	})
	reports := judge(w, cmd.ErrOrStderr(), list)
	e := &baselines.Evidence{Assay: build.Version(), Cluster: "unknown: the nodes are those of files", Time: time.Now(), Nodes: w.Fleet.BaselineNodes(false), Reports: reports}
	if c, ok := w.Kept.(*cluster.Client); ok {
		var err error
		if e.Cluster, err = c.Version(cmd.Context()); err != nil {
			return err
		}
		e.Time = c.Now()
	}
	if output == "markdown" {
		return e.Write(cmd.OutOrStdout())
	}
	stanza := e.Stanza()
	_, err := io.WriteString(cmd.OutOrStdout(), stanza.YAML(""))
	return err
}
