package baselines

import (
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

// Report is what a baseline says about a fleet, with all deviations. Its JSON is an interface.
type Report struct {
	Baseline string `json:"baseline"`
	// Conforming is the condition of the NodeBaseline without its time: status, reason and message.
	Conforming Verdict `json:"conforming"`
	// The names of the nodes in each state, sorted.
	ConformingNodes []string `json:"conformingNodes"`
	DeviatingNodes  []string `json:"deviatingNodes"`
	UnknownNodes    []string `json:"unknownNodes"`
	// Unread are, by node, the sources that its worker has not read, so that results of checks are unknown.
	Unread     map[string][]string               `json:"unread,omitempty"`
	Checks     []assayv1alpha1.BaselineCheck     `json:"checks"`
	Deviations []assayv1alpha1.BaselineDeviation `json:"deviations"`
}

// Verdict is a condition.
type Verdict struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

// New returns the report about a baseline.
func New(name string, r *baseline.Result) *Report {
	c := r.Condition()
	return &Report{
		Baseline: name, Conforming: Verdict{c.Status, c.Reason, c.Message},
		ConformingNodes: list(r.Conforming), DeviatingNodes: list(r.Deviating), UnknownNodes: list(r.Unknown), Unread: r.Unread,
		Checks: list(r.Checks), Deviations: list(r.Deviations),
	}
}

// list returns a list that is [] in JSON if it is empty.
func list[T any](l []T) []T { return append([]T{}, l...) }

// Conforms reports whether the condition Conforming is True.
func (r *Report) Conforms() bool { return r.Conforming.Status == metav1.ConditionTrue }

// numbers returns the numbers of nodes: all, and those in each state.
func (r *Report) numbers() (all, conforming, deviating, unknown int) {
	conforming, deviating, unknown = len(r.ConformingNodes), len(r.DeviatingNodes), len(r.UnknownNodes)
	return conforming + deviating + unknown, conforming, deviating, unknown
}

// Summary returns a row for each baseline, with a header.
func Summary(all []*Report) [][]string {
	rows := [][]string{{"BASELINE", "NODES", "CONFORMING", "DEVIATING", "UNKNOWN", "RESULT"}}
	for _, r := range all {
		nodes, conforming, deviating, unknown := r.numbers()
		rows = append(rows, []string{
			r.Baseline, fmt.Sprint(nodes), fmt.Sprint(conforming), fmt.Sprint(deviating), fmt.Sprint(unknown), r.Conforming.Reason,
		})
	}
	return rows
}

// whyUnknown returns why the features of a node are unknown.
func (r *Report) whyUnknown(node string) string {
	if sources := r.Unread[node]; len(sources) > 0 {
		return facts.WhyUnread(sources)
	}
	return "the features of the node are unknown: check its worker"
}

// Findings returns a row for everything that keeps nodes from conforming, with a header; nil: there is nothing.
func Findings(all []*Report) [][]string {
	rows := [][]string{{"BASELINE", "NODE", "CHECK", "MESSAGE"}}
	for _, r := range all {
		for _, d := range r.Deviations {
			rows = append(rows, []string{r.Baseline, d.Node, d.Check, d.Message})
		}
		for _, c := range r.Checks {
			if text := split(c); text != "" {
				rows = append(rows, []string{r.Baseline, "-", c.Name, text})
			}
		}
		for _, node := range r.UnknownNodes {
			rows = append(rows, []string{r.Baseline, node, "-", r.whyUnknown(node)})
		}
		for _, node := range r.DeviatingNodes {
			if len(r.Unread[node]) > 0 {
				rows = append(rows, []string{r.Baseline, node, "-", r.whyUnknown(node)})
			}
		}
		if nodes, _, _, _ := r.numbers(); nodes == 0 {
			rows = append(rows, []string{r.Baseline, "-", "-", r.Conforming.Message})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}

// split describes a check in which some nodes cannot be compared; empty: all can.
func split(c assayv1alpha1.BaselineCheck) string {
	if c.NoMajority == 0 {
		return ""
	}
	return fmt.Sprintf("no majority among %s: %s", clip.Count(int(c.NoMajority), "node"), values(c))
}

// values lists the values of a check.
func values(c assayv1alpha1.BaselineCheck) string {
	var out []string
	for _, v := range c.Values {
		out = append(out, fmt.Sprintf("%s on %s", v.Value, clip.Count(int(v.Nodes), "node")))
	}
	return strings.Join(out, ", ")
}

// JUnit writes a suite for each baseline with a case for each node, and one for each check without a majority. A node that deviates fails, one
// that is unknown is skipped.
func JUnit(w io.Writer, all []*Report) error {
	const class = "assay.baseline"
	suites := &report.Suites{}
	for _, r := range all {
		suite := report.Suite{Name: r.Baseline}
		failing := map[string]*report.Failure{}
		for _, d := range r.Deviations {
			f := failing[d.Node]
			if f == nil {
				f = &report.Failure{Type: d.Check, Message: d.Check + ": " + d.Message}
				failing[d.Node] = f
			}
			f.Text += d.Check + ": " + d.Message + "\n"
		}
		nodes := slices.Sorted(slices.Values(slices.Concat(r.ConformingNodes, r.DeviatingNodes)))
		for _, node := range nodes {
			suite.Cases = append(suite.Cases, report.Case{Name: node, Class: class, Failure: failing[node]})
		}
		for _, node := range r.UnknownNodes {
			suite.Cases = append(suite.Cases, report.Case{Name: node, Class: class, Skipped: &report.Skipped{Message: r.whyUnknown(node)}})
		}
		for _, c := range r.Checks {
			if text := split(c); text != "" {
				suite.Cases = append(suite.Cases, report.Case{Name: "check " + c.Name, Class: class, Failure: &report.Failure{Type: assayv1alpha1.ReasonNoMajority, Message: text}})
			}
		}
		suites.Suites = append(suites.Suites, suite)
	}
	return suites.Write(w)
}

// Markdown writes a section for each baseline.
func Markdown(w io.Writer, all []*Report) error {
	var out strings.Builder
	for i, r := range all {
		if i > 0 {
			out.WriteString("\n")
		}
		markdown(&out, r, "#")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// markdown writes the section of a baseline with a heading of this level.
func markdown(out *strings.Builder, r *Report, level string) {
	nodes, conforming, deviating, unknown := r.numbers()
	_, _ = fmt.Fprintf(out, "%s NodeBaseline %s\n\n`Conforming`: %s (%s). %s.\n\n", level, r.Baseline, r.Conforming.Status, r.Conforming.Reason, cell(r.Conforming.Message))
	table(out, [][]string{
		{"nodes", "conforming", "deviating", "unknown"},
		{fmt.Sprint(nodes), fmt.Sprint(conforming), fmt.Sprint(deviating), fmt.Sprint(unknown)},
	})
	if len(r.Checks) > 0 {
		rows := [][]string{{"check", "deviating", "values"}}
		for _, c := range r.Checks {
			text := values(c)
			if c.NoMajority > 0 {
				text = split(c)
			}
			rows = append(rows, []string{c.Name, fmt.Sprint(c.Deviating), text})
		}
		out.WriteString("\n")
		table(out, rows)
	}
	if found := Findings([]*Report{r}); found != nil {
		rows := [][]string{{"node", "check", "message"}}
		for _, row := range found[1:] {
			rows = append(rows, row[1:])
		}
		out.WriteString("\n")
		table(out, rows)
	}
}

// table writes a table of Markdown. The first row is the header.
func table(out *strings.Builder, rows [][]string) {
	for i, row := range rows {
		cells := make([]string, len(row))
		for k, text := range row {
			cells[k] = cell(text)
		}
		_, _ = fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			_, _ = fmt.Fprintf(out, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

var escaper = strings.NewReplacer("|", `\|`, "<", "&lt;", "`", "'")

// cell returns a string that changes nothing of the table around it.
func cell(text string) string { return escaper.Replace(clip.Printable(text)) }
