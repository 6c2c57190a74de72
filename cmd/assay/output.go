package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag adds -o with the formats that a command has; the first is the default.
func outputFlag(cmd *cobra.Command, to *string, formats ...string) {
	cmd.Flags().StringVarP(to, "output", "o", formats[0], "format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return formats, cobra.ShellCompDirectiveNoFileComp
	})
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *to) {
			return fmt.Errorf("there is no format %q; use one of %s", *to, strings.Join(formats, ", "))
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// printObject prints a value as JSON or YAML.
func printObject(w io.Writer, format string, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	out := []byte(b.String())
	if format == "yaml" {
		var err error
		if out, err = yaml.JSONToYAML(out); err != nil {
			return err
		}
	}
	_, err := w.Write(out)
	return err
}

// style colours words on a terminal, and leaves them alone anywhere else.
type style struct{ on bool }

// styleOf decides by what is known of the output. NO_COLOR (https://no-color.org) and TERM=dumb turn colours off.
func styleOf(w io.Writer) style {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return style{}
	}
	info, err := f.Stat()
	return style{on: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) good(text string) string  { return s.paint("32", text) }
func (s style) bad(text string) string   { return s.paint("31", text) }
func (s style) warn(text string) string  { return s.paint("33", text) }
func (s style) faint(text string) string { return s.paint("2", text) }
func (s style) bold(text string) string  { return s.paint("1", text) }

// printable replaces what would move the cursor of a terminal: features come from devices, and devices from anywhere.
func printable(s string) string {
	if !strings.ContainsFunc(s, control) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if control(r) {
			return '�'
		}
		return r
	}, s)
}

func control(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// table prints rows in columns that are as wide as they need to be. The last column is not padded.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print(w io.Writer, indent string) {
	var width []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], runes(cell))
		}
	}
	for _, row := range t.rows {
		line := indent
		for i, cell := range row {
			line += cell
			if i+1 < len(row) {
				line += strings.Repeat(" ", width[i]-runes(cell)+2)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func runes(s string) int { return len([]rune(s)) }

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
