// Package lint is the verb lint: it checks rules and other objects in files.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/settings"
)

// maxLintRules is the maximum number of rules that are reviewed at once: they take 22 seconds of CPU time and 900 MB of memory. Kubernetes' own
// validation is half of it.
const maxLintRules = 50_000

type options struct {
	settings       world.SettingFlags
	connect        cluster.Flags
	files          []string
	cluster        bool
	output         string
	fix            bool
	strictAdmit    bool
	quiet          bool
	failOnWarnings bool
	names          bool
}

// NewCommand returns assay lint.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:     "lint [-f] FILE|DIRECTORY|-…",
		Aliases: []string{"validate"},
		Short:   "Check rules and features for errors, and show the line and what to write instead",
		Long: `Check rules and features for errors, and show the line and what to write instead.

It reads NodeFeatureRules, NodeFeatureRuleTemplates, NodeFeatures, NodeFeatureGroups, NodeFeatureRequests,
NodeFeatureSchedulingPolicies, NodeBaselines, configurations of the worker and the controller, ConfigMaps with these, and the
annotations by which pods and workloads require features. It skips other objects and names them. Errors are what the cluster rejects or drops,
such as the first of two equal keys. Programs do not start with configurations that have errors, and do not load them later.
Warnings mark objects that are valid but probably not what you meant. Bases are read from the files, and templates of a base's name among them.

Exit codes: 0 no errors; 1 errors (with --fail-on-warnings: or warnings); 2 the files could not be listed, or have more than 50,000 rules.`,
		Example: `  assay lint rules/
  assay lint --fix rules/gpu.yaml
  helm template charts/gpu | assay lint -
  assay lint -o sarif rules/ > lint.sarif`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args)+len(f.files) == 0 {
				return errors.New("no input: pass a FILE, a DIRECTORY or - for stdin")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, append(f.files, args...)) },
	}
	cli.FilesFlag(cmd, &f.files, "files or directories to check; - for standard input")
	cmd.Flags().BoolVar(&f.fix, "fix", false, "rewrite the files where the meaning stays the same: short forms to long ones, matchOn to matchFeatures, ids in lower case")
	cmd.Flags().BoolVar(&f.strictAdmit, "strict", false, "report rules that NFD accepts but ignores on nodes as errors, as with webhook.strict of the chart")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not print warnings")
	cmd.Flags().BoolVar(&f.failOnWarnings, "fail-on-warnings", false, "exit with 1 if there are warnings")
	cmd.Flags().BoolVar(&f.names, "ids", true, "check PCI and USB ids against their databases")
	cmd.Flags().BoolVar(&f.cluster, "from-cluster", false, "check against the templates, the published features and the webhook's settings of the cluster")
	f.connect.Register(cmd.Flags())
	f.settings.AddFlags(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteYAML
	printer.OutputFlag(cmd, &f.output, "text", "json", "sarif", "junit", "github")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	paths, err := input.Paths(args)
	if err != nil {
		return err
	}
	if f.fix {
		if err := fixFiles(cmd, paths); err != nil {
			return err
		}
	}
	known, err := f.known(cmd)
	if err != nil {
		return err
	}
	files := input.Manifests(paths, cmd.InOrStdin())
	if err := tooManyRules(files, maxLintRules); err != nil {
		return err
	}
	checker := check.New(known, files...)
	checker.Schema, checker.Files = true, true
	found := make([][]report.Finding, len(files))
	waits := printer.NewProgress(cmd)
	var checked sync.Mutex
	done := 0
	input.Each(len(files), func(i int) {
		found[i] = checker.File(files[i])
		checked.Lock()
		defer checked.Unlock()
		done++
		waits.Step("%d of %s checked", done, clip.Count(len(files), "file"))
	})
	waits.End()
	list := slices.Concat(found...)
	list = append(list, withoutObjects(args, files)...)
	dropAnnouncements(files, list)
	if f.quiet {
		list = slices.DeleteFunc(list, func(f report.Finding) bool { return f.Severity != manifest.Error })
	}
	if err := f.print(cmd, files, list); err != nil {
		return err
	}
	if report.Errors(list) > 0 || f.failOnWarnings && len(list) > 0 {
		return cli.ErrFound
	}
	return nil
}

// tooManyRules returns an error if files have more rules than a limit.
func tooManyRules(files []*manifest.File, most int) error {
	n := 0
	for _, f := range files {
		for _, d := range f.Documents {
			if list := d.Child("spec", "rules"); d.Known() && list != nil {
				n += len(list.Content)
			}
		}
	}
	if n <= most {
		return nil
	}
	return fmt.Errorf("%d rules in %s: at most %d are reviewed at once: run the command for each directory or file", n, clip.Count(len(files), "file"), most)
}

// known returns what reviews depend on: the flags, and with --from-cluster what the webhook of the cluster knows.
func (f *options) known(cmd *cobra.Command) (known review.Known, err error) {
	base, webhook := world.UnknownInstallation(), (*world.Installed)(nil)
	var c *cluster.Client
	if f.cluster {
		if c, err = f.connect.Connect(); err != nil {
			return known, err
		}
		if webhook, err = world.ReadInstalled(cmd.Context(), c, f.connect.AssayNamespace, "webhook", ""); err != nil {
			return known, err
		}
		if webhook == nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "assay: warning: the cluster has no Deployment of the webhook; its settings are not checked")
		} else {
			base = webhook.Settings
		}
	}
	s, err := f.settings.Over(cmd.ErrOrStderr(), base)
	if err != nil {
		return known, err
	}
	known.Rules, known.Strict, known.DefaultTemplate = s.Rules(), f.strictAdmit, s.DefaultTemplate
	if f.names {
		known.IDs = &ids.Lazy{}
	}
	if webhook != nil {
		known.Strict, known.Withholding = known.Strict || webhook.StrictAdmission, s.Withholding()
		known.Tolerations = []corev1.Toleration{}
		if err := yaml.Unmarshal([]byte(webhook.Tolerations), &known.Tolerations); err != nil {
			return known, fmt.Errorf("--worker-tolerations of the webhook: %w", err)
		}
	}
	if f.cluster {
		err = f.objects(cmd, c, s, webhook == nil || webhook.NodeWarnings, &known)
	}
	return known, err
}

// objects sets what reviews know of the objects in the cluster.
func (f *options) objects(cmd *cobra.Command, c *cluster.Client, s *settings.Settings, nodes bool, known *review.Known) error {
	ctx := cmd.Context()
	w := world.New(s, f.connect.Installation(ctx, c))
	w.Kept = c
	if err := w.ReadCluster(ctx, c, world.Want{Nodes: nodes, Features: nodes, Devices: true, Rules: true}, io.Discard); err != nil {
		return err
	}
	world.ReadDefinition(ctx, c, definition.Templates, cmd.ErrOrStderr())
	if nodes {
		world.ReadDefinition(ctx, c, definition.Features, cmd.ErrOrStderr())
		world.ReadDefinition(ctx, c, definition.Rules, cmd.ErrOrStderr())
	}
	claimed, err := c.ClaimedResources(ctx)
	world.Note(cmd, err)
	known.Claimed = func(resource string) string { return claimed[resource] }
	known.NoDevices = func() string { return w.NoDevices }
	known.AllTemplates, known.Namespace = true, w.Own
	known.Templates = func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.Templates[name], nil }
	if nodes {
		w.Settle(cmd.ErrOrStderr())
		program, _ := w.Program(ctx, w.Rules)
		known.Published = w.Publishes(program)
		known.HasNode = func(name string) (bool, bool) { return w.Nodes[name] != nil, true }
		known.Labels = func() ([]string, bool) { return w.Labels(program), len(w.Nodes) > 0 }
	}
	return nil
}

func (f *options) print(cmd *cobra.Command, files []*manifest.File, list []report.Finding) error {
	w := cmd.OutOrStdout()
	if written, err := report.Write(w, f.output, build.Version(), files, list); written {
		return err
	}
	printFindings(w, files, list)
	return nil
}

// printFindings prints findings with their lines in the files, and the number of findings.
func printFindings(w io.Writer, files []*manifest.File, list []report.Finding) {
	s := printer.StyleOf(w)
	byName := map[string]*manifest.File{}
	objects, skipped := 0, []string(nil)
	for _, f := range files {
		byName[f.Name] = f
		for _, d := range f.Documents {
			if check.Reviewed(d) {
				objects++
			} else {
				skipped = append(skipped, untitled(d))
			}
		}
	}
	for _, finding := range list {
		printer.Finding(w, s, byName[finding.File], finding, true)
	}
	broken := report.Errors(list)
	summary := fmt.Sprintf("%s in %s: ", clip.Count(objects, "object"), clip.Count(len(files), "file"))
	if len(list) == 0 {
		fmt.Fprintln(w, summary+s.Good("no errors found"))
	} else {
		fmt.Fprintf(w, "%s%s, %s\n", summary, clip.Count(broken, "error"), clip.Count(len(list)-broken, "warning"))
	}
	if len(skipped) > 0 {
		fmt.Fprintf(w, "skipped %s of other kinds: %s\n", clip.Count(len(skipped), "document"), clip.Printable(clip.Join(skipped, ", ", maxSkipped)))
	}
}

// maxSkipped is the maximum number of documents that are named as skipped. A chart has about a hundred.
const maxSkipped = 10

// untitled returns the kind and name of a document, or its place if it has none.
func untitled(d *manifest.Document) string {
	return cmp.Or(d.Title(), fmt.Sprintf("%s:%d", d.File().Name, d.Position().Line))
}

// withoutObjects returns an error for each argument without anything that can be checked. Files in a directory may be empty.
func withoutObjects(args []string, files []*manifest.File) (out []report.Finding) {
	found := 0
	for _, f := range files {
		found += len(f.Documents) + len(f.Problems)
	}
	for _, f := range files {
		at := manifest.Problem{Position: manifest.Position{Line: 1}, Severity: manifest.Error, Code: "empty", Message: "there are no objects; expected YAML or JSON with apiVersion and kind"}
		named := slices.Contains(args, f.Name) || f.Name == "<stdin>"
		switch {
		case !named && found > 0 || len(f.Problems) > 0:
		case len(f.Documents) == 0:
			out = append(out, report.Finding{File: f.Name, Problem: at})
		case named && !slices.ContainsFunc(f.Documents, func(d *manifest.Document) bool { return d.Kind != "" || check.Reviewed(d) }):
			at.Position, at.Message = f.Documents[0].Position(), "no object and no configuration of Assay: kind and apiVersion are missing"
			if manifest.Field(f.Documents[0].Root, "compatibilities") != nil {
				at.Message = "the compatibility of an image; use assay image lint"
			}
			out = append(out, report.Finding{File: f.Name, Problem: at})
		}
	}
	return out
}
