package main

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/doctor"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/review"
)

type uiFlags struct {
	worldFlags
	machine machineFlags
	local   bool
	open    bool
	address string
}

func newUI() *cobra.Command {
	f := &uiFlags{}
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
	f.register(cmd)
	cmd.ValidArgsFunction = completeYAML
	cmd.Flags().BoolVar(&f.local, "local", false, "show this machine; it needs no cluster")
	f.machine.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.open, "open", false, "open the first page in the browser")
	cmd.Flags().StringVar(&f.address, "address", ui.DefaultAddress, "address of the loopback interface to listen on; port 0: any free port")
	return cmd
}

func (f *uiFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && len(f.from) > 0 {
		return errors.New("invalid arguments: name files either as FILE… or with --from")
	}
	f.from = append(f.from, args...)
	listener, err := ui.Listen(f.address)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if !f.local && len(f.from) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "Reading the cluster.") // which takes some seconds if it is large
	}
	first, err := f.snapshot(cmd.Context())
	if err != nil {
		return err
	}
	server := ui.New(first, f.snapshot)
	url := server.URL(listener)
	fmt.Fprintln(cmd.OutOrStdout(), url)
	fmt.Fprintf(cmd.ErrOrStderr(), "Showing %s of %s. Open the address in a browser; press Ctrl-C to stop.\n", clip.Count(len(first.Nodes), "node"), first.Where)
	for _, text := range first.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", printable(text))
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
func (f *uiFlags) snapshot(ctx context.Context) (*ui.Snapshot, error) {
	var notes strings.Builder
	reading := *f
	reading.notes = func() io.Writer { return &notes }
	w, err := reading.readAll(ctx, f.notes())
	if err != nil {
		return nil, err
	}
	program, broken := w.program(ctx, w.rules)
	out := &ui.Snapshot{Where: w.where, At: time.Now(), Program: program, Known: w.known(f, program), Desired: w.desired(), Unknown: w.unknown()}
	unread := map[string]string{}
	if !f.local || len(f.from) > 0 {
		live := &liveWorld{worldFlags: &f.worldFlags, world: w}
		live.client, _ = w.kept.(*cluster.Client)
		out.Live, out.Objects = live, live.objects(ctx)
	}
	if out.Unknown.Nodes == "" && out.Unknown.Features == "" {
		out.Trees = w.trees(&notes, out.Objects.Baselines.Items)
	}
	for line := range strings.Lines(notes.String()) {
		out.Notes = append(out.Notes, strings.TrimPrefix(strings.TrimSpace(line), "note: "))
	}
	if err := w.unread["nodefeatureruletemplates"]; err != nil {
		out.Notes = append(out.Notes, "the templates of rules are unknown: "+err.Error())
	}
	for _, l := range leftOuts(broken) {
		out.Notes = append(out.Notes, ui.LeftOut+l.Error())
		if l.unread {
			unread[l.object] = l.err.Error()
		}
	}
	workers, err := w.workers(ctx)
	if err != nil {
		out.Notes = append(out.Notes, "the state of the workers is unknown: "+err.Error())
	}
	for _, name := range w.fleet.Names() {
		n := ui.Node{Object: w.nodes[name], Input: w.fleet.Input(name), OfWorker: !w.orphan(name)}
		for _, p := range w.fleet.Published(name) {
			n.Published = true
			if p.Changed.After(n.Changed) {
				n.Changed = p.Changed.Time
			}
		}
		if f, ok := workers[name]; ok {
			n.Worker = &ui.Worker{Fault: f.Text, Fix: f.Fix, Ready: f.Ready}
		}
		out.Nodes = append(out.Nodes, n)
	}
	if _, ok := w.kept.(*cluster.Client); ok {
		out.Report = w.report
	}
	out.Explain = w.unwanted
	for _, r := range w.listed() {
		plain := r
		plain.ObjectMeta = metav1.ObjectMeta{Name: r.Name, Labels: r.Labels, Annotations: r.Annotations} // without the fields that the API server sets
		plain.Status = nfdv1alpha1.NodeFeatureRuleStatus{}
		object, err := shown(&plain)
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(withoutNull(object))
		if err != nil {
			return nil, err
		}
		out.Rules = append(out.Rules, ui.Rule{Object: &r.NodeFeatureRule, BuiltIn: r.builtIn, Text: string(text), LeftOut: unread[r.Name]})
	}
	names := &featureTable{}
	out.Describe = names.label
	return out, nil
}

// unknown says what of the cluster the user may not read.
func (w *world) unknown() ui.Unknown {
	why := func(resource string) string {
		if err := w.unread[resource]; err != nil {
			return err.Error()
		}
		return ""
	}
	return ui.Unknown{Nodes: why("nodes"), Features: why("nodefeatures"), Rules: why("nodefeaturerules")}
}

// workers returns the faults of the workers by node; nil: they are unknown.
func (w *world) workers(ctx context.Context) (map[string]doctor.WorkerFault, error) {
	c, ok := w.kept.(*cluster.Client)
	if !ok {
		return nil, nil
	}
	return doctor.WorkerFaults(ctx, c, w.own, w.nodes)
}

// readAll reads the cluster, the files or this machine, and prints to progress what it waits for.
func (f *uiFlags) readAll(ctx context.Context, progress io.Writer) (*world, error) {
	if !f.local {
		return f.load(ctx, want{nodes: true, features: true, devices: true, rules: true, partial: true})
	}
	w, err := f.empty()
	if err != nil {
		return nil, err
	}
	if err := w.readFiles(f.from, want{rules: true}); err != nil {
		return nil, err
	}
	w.nodes = nil
	h := host.Real(host.Paths{})
	report, err := f.machine.discover(ctx, h, progress, f.notes())
	if err != nil {
		return nil, err
	}
	w.where = "this machine"
	w.objects.Published = []offline.Published{offline.Local(w.policy(), h.System.NodeName(), &report.Features, report.Labels)}
	w.settle(f.notes())
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

// known returns the input for reviews of rules. Only for a cluster is it complete.
func (w *world) known(f *uiFlags, program *rules.Program) review.Known {
	out := review.Known{
		Rules: w.opt, Withholding: w.withholding(), DefaultTemplate: w.settings.DefaultTemplate, IDs: &ids.Lazy{},
		Templates: func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.templates[name], nil },
	}
	if f.local || len(f.from) > 0 {
		return out
	}
	out.AllTemplates, out.Published = w.unread["nodefeatureruletemplates"] == nil, w.publishes(program)
	return out
}
