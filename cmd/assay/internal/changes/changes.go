// Package changes prints what differs between two outcomes of nodes.
package changes

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/plan"
)

// Change is a change on one or more nodes.
type Change struct {
	Op    string   `json:"op"` // add, remove, change
	Kind  string   `json:"kind"`
	Key   string   `json:"key"`
	Old   string   `json:"old,omitempty"`
	New   string   `json:"new,omitempty"`
	Nodes []string `json:"nodes"`
}

// Collect groups equal changes of several nodes.
func Collect(names []string, steps [][]plan.Step) []*Change {
	type id struct{ op, kind, key, old, now string }
	all := map[id]*Change{}
	var out []*Change
	for i, list := range steps {
		for _, s := range list {
			k := id{string(s.Op), string(s.Kind), s.Key, s.Old, s.New}
			if all[k] == nil {
				all[k] = &Change{Op: k.op, Kind: k.kind, Key: k.key, Old: k.old, New: k.now}
				out = append(out, all[k])
			}
			all[k].Nodes = append(all[k].Nodes, names[i])
		}
	}
	slices.SortFunc(out, func(a, b *Change) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Old+a.New, b.Old+b.New))
	})
	return out
}

// Print prints changes of a number of nodes. It returns ErrFound if there are any.
func Print(cmd *cobra.Command, list []*Change, nodes int, format string) error {
	w := cmd.OutOrStdout()
	if format != "text" {
		if list == nil {
			list = []*Change{}
		}
		if err := printer.Object(w, format, list); err != nil {
			return err
		}
	} else {
		printText(w, list, nodes)
	}
	if len(list) > 0 {
		return cli.ErrFound
	}
	return nil
}

func printText(w io.Writer, list []*Change, nodes int) {
	s := printer.StyleOf(w)
	touched := map[string]bool{}
	for _, c := range list {
		for _, n := range c.Nodes {
			touched[n] = true
		}
		text := fmt.Sprintf("%s %s", c.Kind, printer.Line(c.Key, c.New))
		switch c.Op {
		case "add", "adopt":
			text = s.Good("+ " + clip.Printable(text))
		case "remove", "forget":
			text = s.Bad("- " + clip.Printable(fmt.Sprintf("%s %s", c.Kind, printer.Line(c.Key, c.Old))))
		default:
			text = s.Warn("~ " + clip.Printable(fmt.Sprintf("%s %s=%s -> %s", c.Kind, c.Key, c.Old, c.New)))
		}
		fmt.Fprintf(w, "%s\n    %s\n", text, s.Faint(someNodes(c.Nodes, nodes)))
	}
	if len(list) == 0 {
		fmt.Fprintf(w, "nothing would change on %s\n", clip.Count(nodes, "node"))
		return
	}
	fmt.Fprintf(w, "%s on %d of %s\n", clip.Count(len(list), "change"), len(touched), clip.Count(nodes, "node"))
}

// maxNamed is the maximum number of nodes in the output of one change.
const maxNamed = 6

func someNodes(names []string, all int) string {
	if len(names) == all && all > 1 {
		return fmt.Sprintf("on all %d nodes", all)
	}
	if len(names) > maxNamed {
		return fmt.Sprintf("on %d nodes: %s, …", len(names), strings.Join(names[:maxNamed], ", "))
	}
	return "on " + strings.Join(names, ", ")
}
