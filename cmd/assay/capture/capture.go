// Package capture is the verb capture: it writes the features or the files of a machine for a bug report or a test.
package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
)

type options struct {
	world.Options
	local  bool
	name   string
	keep   []string
	output string

	machine machine.Flags
}

// NewCommand returns assay capture.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "capture NODE|--local",
		Short: "Write the features of a node to a file, without serial numbers and addresses",
		Long: `Write the features of a node to a file, without serial numbers and addresses, for a test of rules or a bug report.

It replaces values of elements that are named like serial numbers, UUIDs, addresses, asset tags, host names, passwords and
tokens, and in all values and names MAC and IP addresses, UUIDs, world wide names, passwords in URLs and arguments, and the name
of the node.

With -o archive it writes the files of this machine that discovery reads instead, for a test of discovery: assay scan --archive
FILE shows what the machine with these files is. It replaces the node name, MAC addresses, world wide names, serial numbers, asset
tags, and passwords in URLs and arguments.`,
		Example: `  assay capture gpu-1 > tests/a100/facts.yaml
  assay capture --local --name laptop
  assay capture --local -o archive > host.txtar`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.AddFlags(cmd)
	cmd.ValidArgsFunction = cli.CompleteNames(&f.Flags, "nodes")
	cmd.Flags().BoolVar(&f.local, "local", false, "read the features of this machine")
	f.machine.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&f.name, "name", "node-1", "name of the node to write to the file")
	cmd.Flags().StringSliceVar(&f.keep, "keep", nil, "names of elements to keep unchanged")
	printer.OutputFlag(cmd, &f.output, "yaml", "json", "archive")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	if f.output == "archive" {
		return f.archive(cmd, args)
	}
	var node string
	var features *nfdv1alpha1.Features
	var asked map[string]string
	switch {
	case f.local && len(args) == 0:
		name, report, err := f.machine.Read(cmd, "")
		if err != nil {
			return err
		}
		node, features, asked = name, &report.Features, report.Labels
	case len(args) == 1 && !f.local:
		var err error
		if node, err = cli.ObjectName(args[0], cli.NodeKinds...); err != nil {
			return err
		}
		w, err := f.Load(cmd.Context(), world.Want{Node: node, Nodes: true, Features: true, Devices: true})
		if err != nil {
			return err
		}
		if w.Fleet.Published(node) == nil {
			return fmt.Errorf("no features of a node %s are published", node)
		}
		in := w.Fleet.Merged(node)
		features, asked = in.Facts.Features(), in.Labels
	default:
		return errors.New("no node given: use assay capture NODE, or assay capture --local for this machine")
	}
	c := &cleaner{node: node, as: f.name, keep: map[string]bool{}}
	for _, k := range f.keep {
		c.keep[k] = true
	}
	object := &nfdv1alpha1.NodeFeature{
		TypeMeta:   metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{Name: f.name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: f.name}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{Features: c.features(features), Labels: c.values(asked)},
	}
	if err := printer.Object(cmd.OutOrStdout(), f.output, object); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: %s replaced; look through the file before you publish it\n", clip.Count(c.replaced, "value"))
	return nil
}

// archive writes the files of this machine that discovery reads.
func (f *options) archive(cmd *cobra.Command, args []string) error {
	if !f.local || len(args) > 0 {
		return errors.New("the files of another machine cannot be read: run assay capture --local -o archive there")
	}
	if len(f.keep) > 0 || cmd.Flags().Changed("name") {
		return errors.New("--keep and --name change a NodeFeature: leave them out with -o archive")
	}
	var incomplete error
	archive, err := host.Record(cmd.Context(), host.Real(host.Paths{}), func(ctx context.Context, h host.Host) {
		_, incomplete = f.machine.Discover(ctx, h, cmd.ErrOrStderr(), cmd.ErrOrStderr())
	})
	if incomplete != nil {
		return incomplete
	}
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(archive); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "note: look through the file before you publish it")
	return nil
}

// cleaner replaces values that identify a machine.
type cleaner struct {
	node, as string
	keep     map[string]bool
	replaced int
	mask     rules.Masking
}

var (
	telling = regexp.MustCompile(`(?i)serial|uuid|asset|wwn|wwid|macaddr|^mac$|address|hostname|nodename|guid|eui|machine.?id|boot.?id|hostid`)
	mac     = regexp.MustCompile(`^(?i:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}[:-]){4,18}[0-9a-f]{2})$`)
	uuid    = regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// kernelOptions is not cleaned: the options are the same on all machines with this kernel, and some have names like drivers of
// serial ports.
const kernelOptions = "kernel.config"

// replacement replaces a removed value. It is a valid label value.
const replacement = "removed"

func (c *cleaner) value(key, value string) string {
	if c.keep[key] || value == "" {
		return value
	}
	_, notAddress := netip.ParseAddr(value)
	_, notPrefix := netip.ParsePrefix(value)
	short := strings.SplitN(c.node, ".", 2)[0]
	switch {
	case value == c.node || value == short:
		c.replaced++
		return c.as
	case value == "true" || value == "false":
		return value
	case telling.MatchString(key), c.mask.Hides(key), mac.MatchString(value), uuid.MatchString(value), notAddress == nil, notPrefix == nil:
		c.replaced++
		return replacement
	}
	return c.text(value)
}

// Parts of values and names that identify a machine.
var (
	macPart = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,19}\b`)
	// linkPart are names of network interfaces that udev has made of a MAC address, and guidPart those of InfiniBand ports.
	linkPart = regexp.MustCompile(`(?i)\b((?:en|wl|ww|ib|sl)x)[0-9a-f]{12}\b`)
	guidPart = regexp.MustCompile(`(?i)\b[0-9a-f]{4}(?::[0-9a-f]{4}){3}\b`)
	uuidPart = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	ipv4Part = regexp.MustCompile(`(^|[^0-9A-Za-z.-])[0-9]{1,3}(?:[.][0-9]{1,3}){3}($|[^0-9A-Za-z.-])`) // not a version with a suffix
	// word is what may be an IPv6 address, with or without a port.
	word = regexp.MustCompile(`[^\s,;=()/@"']+`)
)

// minNamePart is the minimum length of the name of a node that is replaced inside of values: shorter ones are parts of other words.
const minNamePart = 4

// text replaces the parts of a value or a name that identify a machine.
func (c *cleaner) text(s string) string {
	out := host.ReplaceIdentifiers(s, func(string) string { return replacement })
	out = linkPart.ReplaceAllString(uuidPart.ReplaceAllString(macPart.ReplaceAllString(out, replacement), replacement), "${1}"+replacement)
	out = word.ReplaceAllStringFunc(out, func(w string) string {
		_, address := netip.ParseAddr(strings.Trim(w, "[]"))
		_, port := netip.ParseAddrPort(w)
		if address == nil || port == nil {
			return replacement
		}
		return w
	})
	// IPv6 addresses, which have parts of the same form, are gone.
	out = guidPart.ReplaceAllString(out, replacement)
	for range 2 { // two addresses can share the character between them
		out = ipv4Part.ReplaceAllString(out, "${1}"+replacement+"${2}")
	}
	for _, name := range []string{c.node, strings.SplitN(c.node, ".", 2)[0]} {
		if len(name) < minNamePart {
			continue
		}
		part := regexp.MustCompile(`(^|[^0-9A-Za-z-])` + regexp.QuoteMeta(name) + `($|[^0-9A-Za-z-])`)
		for range 2 { // two names can share the character between them
			out = part.ReplaceAllString(out, "${1}"+strings.ReplaceAll(c.as, "$", "$$")+"${2}")
		}
	}
	if out != s {
		c.replaced++
	}
	return out
}

func (c *cleaner) values(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[c.text(k)] = c.value(k, v)
	}
	return out
}

func (c *cleaner) features(in *nfdv1alpha1.Features) nfdv1alpha1.Features {
	out := *in
	out.Flags = map[string]nfdv1alpha1.FlagFeatureSet{}
	for name, set := range in.Flags {
		clean := make(map[string]nfdv1alpha1.Nil, len(set.Elements))
		for flag := range set.Elements {
			clean[c.text(flag)] = nfdv1alpha1.Nil{}
		}
		out.Flags[name] = nfdv1alpha1.FlagFeatureSet{Elements: clean}
	}
	out.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{}
	for name, set := range in.Attributes {
		if name == kernelOptions {
			out.Attributes[name] = set
			continue
		}
		out.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: c.values(set.Elements)}
	}
	out.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{}
	for name, set := range in.Instances {
		clean := make([]nfdv1alpha1.InstanceFeature, len(set.Elements))
		for i, e := range set.Elements {
			clean[i] = nfdv1alpha1.InstanceFeature{Attributes: c.values(e.Attributes)}
		}
		out.Instances[name] = nfdv1alpha1.InstanceFeatureSet{Elements: clean}
	}
	return out
}
