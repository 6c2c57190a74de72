package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/rules/compose"
)

// copyMode defines what a copy changes.
type copyMode struct {
	verbatim, embed, embedAll bool
	layers                    layers
}

func newCopy(deps Deps) *cobra.Command {
	var mode copyMode
	cmd := &cobra.Command{
		Use:   "copy SRC [DEST]",
		Short: "Write a self-contained copy of a rule or template",
		Long: `Copy a rule or template, to standard output unless DEST is given.

It makes relative locators absolute, so that the copy means the same as the original. With --embed it includes documents in
files, and keeps templates of the cluster as references. With --embed-all it includes those too, and the copy needs no other
document. Comments are kept.`,
		Example: `  assay template copy gpu-pool.yaml copy.yaml
  assay template copy --embed-all gpu-pool.yaml - | kubectl apply -f -
  assay template copy --fill --override site.yaml gpu-pool.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := mode.run(newLoader(cmd.Context(), deps, cmd.InOrStdin()), args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 || args[1] == string(stdin) {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			return writeFile(args[1], text)
		},
	}
	cmd.Flags().BoolVar(&mode.verbatim, "verbatim", false, "copy without changes")
	cmd.Flags().BoolVar(&mode.embed, "embed", false, "embed all documents except templates of the cluster")
	cmd.Flags().BoolVar(&mode.embedAll, "embed-all", false, "embed all documents")
	mode.layers.addFlags(cmd)
	return cmd
}

func (m *copyMode) run(load *loader, src string) ([]byte, error) {
	if m.verbatim && (m.embed || m.embedAll || m.layers.fill) {
		return nil, errors.New("--verbatim cannot be combined with other flags")
	}
	if m.embed && m.embedAll {
		return nil, errors.New("use either --embed or --embed-all")
	}
	at, err := argumentLocator(src)
	if err != nil {
		return nil, err
	}
	if m.verbatim || !m.embed && !m.embedAll && !m.layers.fill {
		if m.layers.override != "" || m.layers.deflt != "" {
			return nil, m.layers.read(load)
		}
		text, err := load.read(at)
		if err != nil || m.verbatim {
			return text, err
		}
		doc, err := load.parse(at, text)
		if err != nil {
			return nil, err
		}
		return absolute(load, at, doc, text)
	}
	load.embedFiles = true
	doc, err := load.argument(src)
	if err != nil {
		return nil, err
	}
	out, err := m.layers.assemble(load, doc, m.embed && !m.layers.fill)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = write(&b, out.Root)
	return b.Bytes(), err
}

// absolute makes the locators in a string absolute and changes nothing else.
func absolute(load *loader, at locator, doc *compose.YAML, text []byte) ([]byte, error) {
	edits, err := locatorEdits(at, doc)
	if err != nil {
		return nil, err
	}
	out, ok := splice(text, edits)
	if ok { // the edits are correct if the result has the expected locators
		again, err := load.parse(at, out)
		if err == nil {
			rest, err := locatorEdits(at, again)
			if err == nil && len(rest) == 0 {
				return out, nil
			}
		}
	}
	for _, e := range edits { // a locator in an unusual notation
		e.node.SetString(e.text)
	}
	var b bytes.Buffer
	err = write(&b, doc.Root)
	return b.Bytes(), err
}

// writeFile replaces a file atomically.
func writeFile(name string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, bytes.NewReader(text))
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.Rename(tmp.Name(), name)
}
