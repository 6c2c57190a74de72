package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/rules/clip"
)

// OutputFlag adds -o with the formats of a command. The first format is the default. If JSON is among them, kubectl's JSONPath
// templates are also accepted.
func OutputFlag(cmd *cobra.Command, to *string, formats ...string) {
	usage := "format: " + strings.Join(formats, ", ")
	if isObjectFormats(formats) {
		usage += ", jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE, jsonpath-file=FILE"
	}
	cmd.Flags().StringVarP(to, "output", "o", formats[0], usage)
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return formats, cobra.ShellCompDirectiveNoFileComp
	})
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := checkFormat(*to, formats); err != nil {
			return err
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// isObjectFormats reports whether all formats of a command print the same object.
func isObjectFormats(formats []string) bool {
	return slices.Contains(formats, "json") && slices.Contains(formats, "yaml")
}

// IsObject reports whether Object prints a format.
func IsObject(format string) bool {
	return format == "json" || format == "yaml" || strings.HasPrefix(format, "jsonpath")
}

func checkFormat(format string, formats []string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	if isObjectFormats(formats) && strings.HasPrefix(format, "jsonpath") {
		_, err := jsonPath(format)
		return err
	}
	return fmt.Errorf("invalid format %q: use one of %s", format, strings.Join(formats, ", "))
}

// jsonPath returns kubectl's printer for a format such as jsonpath=TEMPLATE.
func jsonPath(format string) (*printers.JSONPathPrinter, error) {
	kind, text, _ := strings.Cut(format, "=")
	if text == "" {
		return nil, fmt.Errorf("invalid format %q: use for example -o %s='{.metadata.name}'", format, kind)
	}
	switch kind {
	case "jsonpath", "jsonpath-as-json":
	case "jsonpath-file":
		data, err := os.ReadFile(text)
		if err != nil {
			return nil, err
		}
		text = string(data)
	default:
		return nil, fmt.Errorf("invalid format %q: use jsonpath, jsonpath-as-json or jsonpath-file", kind)
	}
	p, err := printers.NewJSONPathPrinter(text)
	if err != nil {
		return nil, fmt.Errorf("invalid template in -o %s: %w", format, err)
	}
	p.AllowMissingKeys(true)
	p.EnableJSONOutput(kind == "jsonpath-as-json")
	return p, nil
}

// printed wraps a value as an object for kubectl's printers.
type printed struct{ value any }

// MarshalJSON implements json.Marshaler.
func (p *printed) MarshalJSON() ([]byte, error) { return json.Marshal(p.value) }

// GetObjectKind implements runtime.Object.
func (p *printed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It returns the object itself, since printers do not modify it.
func (p *printed) DeepCopyObject() runtime.Object { return p }

// Object prints a value as JSON or YAML or with a JSONPath template.
func Object(w io.Writer, format string, v any) error {
	if strings.HasPrefix(format, "jsonpath") {
		p, err := jsonPath(format)
		if err != nil {
			return err
		}
		return p.PrintObj(&printed{v}, w)
	}
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

// Style colors words if the output is a terminal.
type Style struct{ on bool }

// StyleOf returns the style for an output. NO_COLOR (https://no-color.org) and TERM=dumb disable colors.
func StyleOf(w io.Writer) Style {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return Style{}
	}
	info, err := f.Stat()
	return Style{on: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s Style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good returns text in green.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad returns text in red.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Warn returns text in yellow.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Faint returns text faintly.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// Bold returns text in bold.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Table prints rows in aligned columns. The last column is not padded.
type Table struct{ Rows [][]string }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	for i := range cells {
		cells[i] = clip.Printable(cells[i])
	}
	t.Rows = append(t.Rows, cells)
}

// Print prints all rows, each after an indentation.
func (t *Table) Print(w io.Writer, indent string) {
	var width []int
	for _, row := range t.Rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], Runes(cell))
		}
	}
	for _, row := range t.Rows {
		line := indent
		for i, cell := range row {
			line += cell
			if i+1 < len(row) {
				line += strings.Repeat(" ", width[i]-Runes(cell)+2)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// List prints rows in the style of kubectl get. The first row is the header.
func (t *Table) List(w io.Writer, noHeaders bool) error {
	out := &metav1.Table{}
	for i, row := range t.Rows {
		cells := make([]any, len(row))
		for j, cell := range row {
			cells[j] = cell
			if i == 0 {
				out.ColumnDefinitions = append(out.ColumnDefinitions, metav1.TableColumnDefinition{Name: cell, Type: "string"})
			}
		}
		if i > 0 {
			out.Rows = append(out.Rows, metav1.TableRow{Cells: cells})
		}
	}
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: noHeaders}).PrintObj(out, w)
}

// HeadersFlag adds --no-headers.
func HeadersFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "no-headers", false, "do not print the header of a table")
}

// Runes returns the number of characters of a string.
func Runes(s string) int { return len([]rune(s)) }
