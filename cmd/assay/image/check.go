package image

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/review"
)

type checkOptions struct {
	world.Options
	registry registryFlags
	local    bool
	node     string
	nodes    string
	selector string
	tags     []string
	platform string
	allNodes bool
	required bool
	all      bool
	output   string
}

func newCheck() *cobra.Command {
	f := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "Show which nodes an image fits, and what the others lack",
		Long: `Show which nodes an image fits, and what the others lack.

It reads the newest compatibility artifact of the image from its registry, and the features of the nodes from the cluster, of files
(--from) or of this machine (--local). A set is met if all of its rules match; the image fits a node if one set is met, or if it has no
artifact. For a node that it does not fit, the nearest set is that with the fewest rules that do not match.

Of an image for several platforms, the artifact of the node's platform counts, else that of the index.

Exit codes: 0 the image fits at least one node (with --all-nodes: all nodes); 1 it does not; 2 the registry or the cluster could not be
read, or the artifact is invalid. Nodes without published features are unknown, and the image does not fit them.`,
		Example: `  assay image check registry.example.com/team/app:v1
  assay image check registry.example.com/team/app:v1 --local --required
  assay image check registry.example.com/team/app:v1 -l pool=gpu --all-nodes -o json`,
		Args: oneImage,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.Options.AddFlags(cmd)
	f.registry.register(cmd.Flags())
	platformFlag(cmd.Flags(), &f.platform, "that of each node by default")
	cmd.Flags().BoolVar(&f.local, "local", false, "check this machine instead of the nodes of a cluster")
	cmd.Flags().StringVar(&f.node, "node", "", "node to check; all nodes by default")
	cmd.Flags().StringVar(&f.nodes, "nodes", "", "nodes to check, such as 'n[1-20]'")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes to check")
	cmd.Flags().StringSliceVar(&f.tags, "tags", nil, "consider only sets with one of these tags")
	cmd.Flags().BoolVar(&f.allNodes, "all-nodes", false, "exit with 1 unless the image fits every node that is checked")
	cmd.Flags().BoolVar(&f.required, "required", false, "exit with 1 if the image has no compatibility artifact")
	cmd.Flags().BoolVar(&f.all, "all", false, "do not shorten the list of nodes")
	cmd.MarkFlagsMutuallyExclusive("local", "node", "nodes")
	cmd.MarkFlagsMutuallyExclusive("local", "selector")
	cmd.MarkFlagsMutuallyExclusive("local", "from")
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

// target is a node that an image is checked on.
type target struct {
	name     string
	input    rules.Input
	known    bool // features are published
	platform platform
}

// The results of a check on one node.
const (
	fits    = "fits"
	unfit   = "does not fit"
	unknown = "unknown"
)

// verdicts is the JSON of a check.
type verdicts struct {
	Image     string           `json:"image"`
	Digest    string           `json:"digest"`
	Meaning   string           `json:"meaning"`
	Fitting   int              `json:"fitting"`
	Artifacts []*compatibility `json:"artifacts"`
	Nodes     []verdict        `json:"nodes"`
}

// verdict is the result on one node.
type verdict struct {
	Node   string `json:"node"`
	Result string `json:"result"`
	// Artifact is the digest of the artifact that counts for the node; empty: there is none.
	Artifact string              `json:"artifact,omitempty"`
	Met      []set               `json:"met,omitempty"`
	Nearest  *set                `json:"nearest,omitempty"`
	Missing  []imagespec.Missing `json:"missing,omitempty"`
	Reason   string              `json:"reason,omitempty"`
}

// set identifies a set.
type set struct {
	Set         int    `json:"set"` // counted from 1
	Tag         string `json:"tag,omitempty"`
	Weight      int    `json:"weight,omitempty"`
	Description string `json:"description,omitempty"`

	title string
}

func newSet(s *imagespec.Set) set {
	return set{s.Index + 1, s.Tag, s.Weight, s.Description, s.Title()}
}

func (f *checkOptions) run(cmd *cobra.Command, ref string) error {
	wanted, err := parsePlatform(f.platform)
	if err != nil {
		return err
	}
	p := printer.NewProgress(cmd)
	defer p.End()
	p.Step("Reading nodes…")
	nodes, opt, err := f.targets(cmd)
	if err != nil {
		return err
	}
	if f.platform != "" {
		for i := range nodes {
			nodes[i].platform = wanted
		}
	}
	c, ctx, cancel, err := f.registry.open(cmd.Context(), ref, registry.Options{})
	if err != nil {
		return err
	}
	defer cancel()
	p.Step("Reading %s from %s…", ref, c.Host())
	reader, err := newArtifactReader(ctx, c, review.Known{Rules: opt})
	if err != nil {
		return err
	}
	report := &verdicts{
		Image: ref, Digest: string(reader.image.Descriptor.Digest), Meaning: imagespec.Meaning, Artifacts: []*compatibility{},
		Nodes: make([]verdict, len(nodes)),
	}
	missing := false
	for _, group := range byPlatform(nodes) {
		p.Step("Checking %s on %s…", ref, clip.Count(len(group), "node"))
		none, err := report.check(ctx, reader, nodes, group, f.tags)
		if err != nil {
			return err
		}
		missing = missing || none
	}
	p.End()
	if err := f.print(cmd.OutOrStdout(), report); err != nil {
		return err
	}
	switch {
	case f.required && missing:
		return cli.Found(fmt.Errorf("%s has no compatibility artifact", ref))
	case report.Fitting == 0, f.allNodes && report.Fitting < len(nodes):
		return cli.ErrFound
	}
	return nil
}

// targets returns the nodes to check, and the settings of rules.
func (f *checkOptions) targets(cmd *cobra.Command) ([]target, rules.Options, error) {
	if f.local {
		s, err := f.Settings.Over(cmd.ErrOrStderr(), world.UnknownInstallation())
		if err != nil {
			return nil, rules.Options{}, err
		}
		name, report, err := (&machine.Flags{}).Read(cmd, "")
		if err != nil {
			return nil, rules.Options{}, err
		}
		in := machine.Input(s.Gather(cluster.DefaultNamespace), name, report)
		return []target{{name, in, true, platform{os: runtime.GOOS, architecture: runtime.GOARCH}}}, s.Rules(), nil
	}
	w, err := f.Load(cmd.Context(), world.Want{Node: f.node, Nodes: true, Features: true, Devices: true, Selector: f.selector})
	if err != nil {
		return nil, rules.Options{}, err
	}
	names, err := w.Chosen(f.nodes)
	if err != nil {
		return nil, rules.Options{}, err
	}
	out := make([]target, len(names))
	for i, name := range names {
		out[i] = target{name: name, input: w.Fleet.Input(name), known: len(w.Fleet.Published(name)) > 0}
		if node := w.Nodes[name]; node != nil {
			info := node.Status.NodeInfo
			out[i].platform = platform{os: info.OperatingSystem, architecture: info.Architecture}
		}
	}
	return out, w.Limits, nil
}

// byPlatform returns the indexes of the nodes of each platform.
func byPlatform(nodes []target) [][]int {
	var out [][]int
	at := map[platform]int{}
	for i := range nodes {
		n, ok := at[nodes[i].platform]
		if !ok {
			n = len(out)
			at[nodes[i].platform] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// check adds the verdicts on the nodes of one platform. It returns true if the image has no artifact for it.
func (r *verdicts) check(ctx context.Context, reader *artifactReader, nodes []target, group []int, tags []string) (none bool, err error) {
	p := nodes[group[0]].platform
	if _, ok := manifestOf(reader.image, p); reader.image.Index && !ok {
		for _, i := range group {
			r.Nodes[i] = verdict{Node: nodes[i].name, Result: unfit, Reason: noManifest(reader.image, p).Error()}
		}
		return false, nil
	}
	a, err := reader.on(ctx, p)
	if err != nil {
		return false, err
	}
	if a == nil {
		for _, i := range group {
			r.Nodes[i] = verdict{Node: nodes[i].name, Result: fits, Reason: "the image has no compatibility artifact"}
		}
		r.Fitting += len(group)
		return true, nil
	}
	sets, err := a.sets(tags)
	if err != nil {
		return false, err
	}
	r.add(a)
	inputs := make([]*rules.Input, len(group))
	for n, i := range group {
		inputs[n] = &nodes[i].input
	}
	for n, v := range imagespec.Check(sets, inputs) {
		i := group[n]
		r.Nodes[i] = verdictOn(&nodes[i], a, len(sets), v)
		if r.Nodes[i].Result == fits {
			r.Fitting++
		}
	}
	return false, nil
}

// sets returns the sets with one of the tags, or an error if the artifact is invalid.
func (a *compatibility) sets(tags []string) ([]*imagespec.Set, error) {
	if err := a.document.Err(); err != nil {
		return nil, err
	}
	return a.document.Select(tags)
}

func (r *verdicts) add(a *compatibility) {
	for _, b := range r.Artifacts {
		if a == b {
			return
		}
	}
	r.Artifacts = append(r.Artifacts, a)
}

func verdictOn(node *target, a *compatibility, sets int, v imagespec.Verdict) verdict {
	out := verdict{Node: node.name, Artifact: a.Digest, Result: unfit}
	switch {
	case sets == 0:
		out.Result, out.Reason = fits, "the artifact has no sets"
	case !node.known:
		out.Result, out.Reason = unknown, "no features are published for the node"
	case v.Fits():
		out.Result = fits
		for _, s := range v.Met {
			out.Met = append(out.Met, newSet(s))
		}
	default:
		nearest := newSet(v.Nearest)
		out.Nearest, out.Missing = &nearest, v.Missing
	}
	return out
}

// maxVerdicts is the maximum number of nodes with the same result that are listed without --all.
const maxVerdicts = 20

func (f *checkOptions) print(w io.Writer, r *verdicts) error {
	if f.output != "text" {
		return printer.Object(w, f.output, r)
	}
	s := printer.StyleOf(w)
	fmt.Fprintf(w, "%s is %s\n", clip.Printable(r.Image), r.Digest)
	for _, a := range r.Artifacts {
		fmt.Fprintln(w, clip.Printable(a.text()))
	}
	if len(r.Artifacts) == 0 {
		fmt.Fprintln(w, "The image has no compatibility artifact.")
	}
	text := fmt.Sprintf("The image fits %d of %s", r.Fitting, clip.Count(len(r.Nodes), "node"))
	if r.Fitting == 0 {
		text = s.Bad(text)
	} else {
		text = s.Good(text)
	}
	fmt.Fprintf(w, "%s: %s.\n\n", text, r.Meaning)
	t := &printer.Table{}
	t.Add("NODE", "RESULT", "WHY")
	shown, hidden := map[string]int{}, 0
	for i := range r.Nodes {
		v := &r.Nodes[i]
		if shown[v.Result]++; shown[v.Result] > maxVerdicts && !f.all {
			hidden++
			continue
		}
		t.Add(v.Node, v.Result, v.why())
	}
	t.Print(w, "")
	if hidden > 0 {
		fmt.Fprintf(w, "and %s more; --all lists all\n", clip.Count(hidden, "node"))
	}
	return nil
}

// why explains a verdict in one line.
func (v *verdict) why() string {
	switch {
	case v.Reason != "":
		return v.Reason
	case v.Nearest == nil:
		return v.Met[0].title
	}
	var parts []string
	for _, m := range v.Missing {
		parts = append(parts, fmt.Sprintf("rule %q: %s", m.Rule, m.Why))
	}
	return v.Nearest.title + ": " + strings.Join(parts, "; ")
}
