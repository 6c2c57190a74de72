package ui

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/explanation"
	"github.com/assay-project/assay/cmd/assay/internal/featuretable"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/review"
)

type options struct {
	world.Options
	machine machine.Flags
	local   bool
	open    bool
	address string
	faults  Faults
}

// Faults returns the problems of the workers by node; nil: no DaemonSet of the worker is installed.
type Faults func(ctx context.Context, c *cluster.Client, namespace string, nodes map[string]*corev1.Node) (map[string]cluster.Worker, error)

// NewCommand returns assay ui.
func NewCommand(faults Faults) *cobra.Command {
	f := &options{faults: faults}
	cmd := &cobra.Command{
		Use:   "ui [FILE…]",
		Short: "Show nodes, rules and a playground for rules in the browser",
		Long: `Show nodes, rules and a playground for rules in the browser.

It serves pages on the loopback interface, prints their address, and runs until it is interrupted. It shows the cluster; with FILEs,
the nodes and rules in them, as "assay capture" writes them or kubectl prints them; with --local, this machine and the rules in FILEs.
It only reads: it changes nothing, and applies no rule of the playground. The address contains a random token: do not share it with
users who must not see the features of all nodes.`,
		Example: `  assay ui
  assay ui --local
  assay ui tests/a100/facts.yaml rules/
  assay ui --open --context staging`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.AddFlags(cmd)
	cmd.ValidArgsFunction = cli.CompleteYAML
	cmd.Flags().BoolVar(&f.local, "local", false, "show this machine; it needs no cluster")
	f.machine.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&f.open, "open", false, "open the first page in the browser")
	cmd.Flags().StringVar(&f.address, "address", DefaultAddress, "address of the loopback interface to listen on; port 0: any free port")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && len(f.From) > 0 {
		return errors.New("invalid arguments: name files either as FILE… or with --from")
	}
	f.From = append(f.From, args...)
	listener, err := Listen(f.address)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if !f.local && len(f.From) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "Reading the cluster.") // which takes some seconds if it is large
	}
	first, err := f.snapshot(cmd.Context())
	if err != nil {
		return err
	}
	server := New(first, f.snapshot)
	url := server.URL(listener)
	fmt.Fprintln(cmd.OutOrStdout(), url)
	fmt.Fprintf(cmd.ErrOrStderr(), "Showing %s of %s. Open the address in a browser; press Ctrl-C to stop.\n", clip.Count(len(first.Nodes), "node"), first.Where)
	for _, n := range first.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", clip.Printable(n.Text))
	}
	if f.open {
		page, err := redirectPage(url)
		if err == nil {
			defer func() { _ = os.RemoveAll(filepath.Dir(page)) }()
			err = openBrowser(cmd.Context(), page)
		}
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: cannot open a browser: %v\n", err)
		}
	}
	return server.Serve(cmd.Context(), listener)
}

// redirectPage writes a file in a new directory, which only the user can read, that redirects to an address. The address contains a token,
// and all users can read the command lines of a machine.
func redirectPage(url string) (string, error) {
	dir, err := os.MkdirTemp("", "assay-ui-")
	if err != nil {
		return "", err
	}
	page := filepath.Join(dir, "open.html")
	text := `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url=` +
		html.EscapeString(url) + `"><title>Assay</title>`
	return page, os.WriteFile(page, []byte(text), 0o600)
}

// openBrowser opens a file in the default browser.
func openBrowser(ctx context.Context, file string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return exec.CommandContext(ctx, program, file).Start()
}

// snapshot reads the data for the pages. What would be printed for other commands is on the pages.
func (f *options) snapshot(ctx context.Context) (*Snapshot, error) {
	var notes strings.Builder
	reading := *f
	reading.Notes = func() io.Writer { return &notes }
	w, err := reading.readAll(ctx, f.Notes())
	if err != nil {
		return nil, err
	}
	program, broken := w.Program(ctx, w.Rules)
	out := &Snapshot{Where: w.Where, At: time.Now(), Program: program, Known: reviewInput(w, f, program), Desired: w.Desired(), Unknown: unknown(w)}
	unread := map[string]string{}
	if !f.local || len(f.From) > 0 {
		live := &live{Options: &f.Options, world: w}
		live.client, _ = w.Kept.(*cluster.Client)
		out.Live, out.Objects = live, live.objects(ctx)
	}
	if out.Unknown.Nodes == "" && out.Unknown.Features == "" {
		out.Trees = baselines.Trees(w, &notes, out.Objects.Baselines.Items)
	}
	for line := range strings.Lines(notes.String()) {
		out.Notes = append(out.Notes, Note{Text: strings.TrimPrefix(strings.TrimSpace(line), "note: ")})
	}
	if err := w.Unread["nodefeatureruletemplates"]; err != nil {
		out.Notes = append(out.Notes, Note{Text: "the templates of rules are unknown: " + err.Error()})
	}
	for _, l := range world.LeftOuts(broken) {
		out.Notes = append(out.Notes, Note{Text: "not evaluated: " + l.Error(), Rule: l.Object})
		if l.Unread {
			unread[l.Object] = l.Err.Error()
		}
	}
	workers, err := f.workers(ctx, w)
	if err != nil {
		out.Notes = append(out.Notes, Note{Text: "the state of the workers is unknown: " + err.Error()})
	}
	for _, name := range w.Fleet.Names() {
		n := Node{Object: w.Nodes[name], Input: w.Fleet.Input(name), OfWorker: !w.Orphan(name)}
		for _, p := range w.Fleet.Published(name) {
			n.Published = true
			if p.Changed.After(n.Changed) {
				n.Changed = p.Changed.Time
			}
		}
		if worker, ok := workers[name]; ok {
			n.Worker = &worker
		}
		out.Nodes = append(out.Nodes, n)
	}
	if _, ok := w.Kept.(*cluster.Client); ok {
		out.Report = w.Report
	}
	out.Explain = func(ctx context.Context, node *corev1.Node, o *rules.Outcome, report *held.Report) []Unwanted {
		return unwanted(ctx, w, node, o, report)
	}
	for _, r := range w.Listed() {
		plain := r
		plain.ObjectMeta = metav1.ObjectMeta{Name: r.Name, Labels: r.Labels, Annotations: r.Annotations} // without the fields that the API server sets
		plain.Status = nfdv1alpha1.NodeFeatureRuleStatus{}
		object, err := world.Shown(&plain)
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(withoutNull(object))
		if err != nil {
			return nil, err
		}
		out.Rules = append(out.Rules, Rule{Object: &r.NodeFeatureRule, BuiltIn: r.BuiltIn, Text: string(text), LeftOut: unread[r.Name]})
	}
	names := &featuretable.Table{}
	out.Describe = names.Label
	return out, nil
}

// unwanted explains the keys of a Node that no rule or NodeFeature gives now.
func unwanted(ctx context.Context, w *world.World, node *corev1.Node, o *rules.Outcome, report *held.Report) (out []Unwanted) {
	for _, x := range explanation.Unwanted(ctx, w, node, o, report) {
		row := Unwanted{Kind: x.Kind, Key: x.Key, Value: *x.Value, Kept: x.State == desired.Kept, Own: x.State == desired.Own, Hold: x.Hold, Why: x.Why, By: x.Managers}
		for _, s := range x.Sources {
			row.By = append(row.By, s.Why)
		}
		out = append(out, row)
	}
	return out
}

// unknown says what of the cluster the user may not read.
func unknown(w *world.World) Unknown {
	why := func(resource string) string {
		if err := w.Unread[resource]; err != nil {
			return err.Error()
		}
		return ""
	}
	return Unknown{Nodes: why("nodes"), Features: why("nodefeatures"), Rules: why("nodefeaturerules")}
}

// workers returns the faults of the workers by node; nil: they are unknown.
func (f *options) workers(ctx context.Context, w *world.World) (map[string]cluster.Worker, error) {
	c, ok := w.Kept.(*cluster.Client)
	if !ok {
		return nil, nil
	}
	return f.faults(ctx, c, w.Own, w.Nodes)
}

// readAll reads the cluster, the files or this machine, and prints to progress what it waits for.
func (f *options) readAll(ctx context.Context, progress io.Writer) (*world.World, error) {
	if !f.local {
		return f.Load(ctx, world.Want{Nodes: true, Features: true, Devices: true, Rules: true, Partial: true})
	}
	w, err := f.Empty()
	if err != nil {
		return nil, err
	}
	if err := w.ReadFiles(f.From, world.Want{Rules: true}); err != nil {
		return nil, err
	}
	w.Nodes = nil
	h := host.Real(host.Paths{})
	report, err := f.machine.Discover(ctx, h, progress, f.Notes())
	if err != nil {
		return nil, err
	}
	w.Where = "this machine"
	w.Objects.Published = []offline.Published{offline.Local(w.Policy(), h.System.NodeName(), &report.Features, report.Labels)}
	w.Settle(f.Notes())
	return w, nil
}

// withoutNull removes empty fields, which NFD's types always write.
func withoutNull(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil {
				delete(v, key)
			} else {
				v[key] = withoutNull(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNull(v[i])
		}
	}
	return v
}

// reviewInput returns the input for reviews of rules. Only for a cluster is it complete.
func reviewInput(w *world.World, f *options, program *rules.Program) review.Known {
	out := review.Known{
		Rules: w.Limits, Withholding: w.Withholding(), DefaultTemplate: w.Settings.DefaultTemplate, IDs: &ids.Lazy{},
		Templates: func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.Templates[name], nil },
	}
	if f.local || len(f.From) > 0 {
		return out
	}
	out.AllTemplates, out.Published = w.Unread["nodefeatureruletemplates"] == nil, w.Publishes(program)
	return out
}
