package ui

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// stateColumn is a column of the list of nodes that is not a feature. Its name has no dot, which the names of features have.
type stateColumn struct {
	tableColumn
	// of returns the cell of a node; empty: unknown.
	of func(d *data, i int) cell
	// all is set if the cells of all nodes need an evaluation of all nodes.
	all bool
}

// states are the columns in the order of the page.
var states []stateColumn

// The column of the state is computed from the others.
func init() {
	states = append([]stateColumn{{tableColumn{Name: stateTrait, Kind: columnState, Title: "The most urgent state, and the first reason of each"}, func(d *data, i int) cell {
		s := d.nodeState(i, d.unevaluated() == "")
		return s.cell()
	}, true}}, columnStates...)
}

// columnStates are the states that have a column of their own.
var columnStates = []stateColumn{
	{tableColumn{Name: "ready", Title: "The condition Ready of the Node"}, func(d *data, i int) cell {
		c := conditionCell(d.Nodes[i].Object, string(corev1.NodeReady))
		if object := d.Nodes[i].Object; object != nil && object.Spec.Unschedulable {
			c.Faint = "cordoned"
		}
		return c
	}, false},
	{tableColumn{Name: "features-ready", Title: "The condition FeaturesReady: all rules are applied to the features of this boot"}, func(d *data, i int) cell {
		return conditionCell(d.Nodes[i].Object, assayv1alpha1.FeaturesReadyCondition)
	}, false},
	{tableColumn{Name: "features-age", Kind: columnValue, Title: "The time since the features of the node changed"}, func(d *data, i int) cell {
		if d.Unknown.Features != "" {
			return cell{}
		}
		if !d.Nodes[i].Published {
			return cell{Text: "none", Class: "bad"}
		}
		return d.age(d.Nodes[i].Changed)
	}, false},
	{tableColumn{Name: "worker", Title: "The worker on the node"}, workerCell, false},
	{tableColumn{Name: "withheld", Kind: columnCount, Title: "Outputs of rules that a policy, a setting or an invalid value keeps from the Node"}, func(d *data, i int) cell {
		return d.problemCell(i, func(v *verdict) problems { return v.withheld })
	}, true},
	{tableColumn{Name: "conflicts", Kind: columnCount, Title: "Outputs of rules that lose against another rule"}, func(d *data, i int) cell {
		return d.problemCell(i, func(v *verdict) problems { return v.conflicts })
	}, true},
	{tableColumn{Name: "missing", Kind: columnCount, Title: "Outputs of rules that the Node lacks although nothing withholds them"}, func(d *data, i int) cell {
		if d.Nodes[i].Object == nil {
			return cell{}
		}
		return d.problemCell(i, func(v *verdict) problems { return v.missing })
	}, true},
}

// stateOf returns a state column by name, or nil.
func stateOf(name string) *stateColumn {
	i := slices.IndexFunc(states, func(s stateColumn) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &states[i]
}

func conditionCell(node *corev1.Node, kind string) cell {
	if node == nil {
		return cell{}
	}
	for _, c := range node.Status.Conditions {
		if string(c.Type) != kind {
			continue
		}
		switch c.Status {
		case corev1.ConditionTrue:
			return cell{Text: "yes"}
		case corev1.ConditionFalse:
			return cell{Text: "no", Class: "bad", Note: strings.TrimPrefix(c.Reason+": "+c.Message, ": ")}
		}
		return cell{Text: "unknown", Class: "bad", Note: strings.TrimPrefix(c.Reason+": "+c.Message, ": ")}
	}
	return cell{}
}

func workerCell(d *data, i int) cell {
	switch w := d.Nodes[i].Worker; {
	case w == nil:
		return cell{}
	case w.Fault != "" && w.Ready:
		return cell{Text: "failing", Class: "bad", Note: w.Fault}
	case w.Fault != "":
		return cell{Text: "down", Class: "bad", Note: w.Fault}
	}
	return cell{Text: "running"}
}

// problemCell returns the number of problems of a node, and the first one.
func (d *data) problemCell(i int, of func(*verdict) problems) cell {
	if d.unevaluated() != "" {
		return cell{}
	}
	p := of(d.verdict(i))
	if p.count == 0 {
		return cell{Text: "0", Class: "faint"}
	}
	out := cell{Text: strconv.Itoa(p.count), Class: "warn", Note: p.first[0]}
	if p.count > 1 {
		out.Note += fmt.Sprintf("; and %d more", p.count-1)
	}
	return out
}

// holds reports whether a state is what its name says: yes, running, or a number of problems that is not 0.
func (c cell) holds() bool {
	return c.Text != "" && c.Text != "0" && c.Text != "no" && c.Text != "none" && c.Text != "unknown" && c.Class != "bad"
}

// testState compares a state column.
func (t *term) testState(s *stateColumn) error {
	check, err := stateCheck(s, t.op, t.operands())
	t.test = func(d *data, i int) bool { return check(s.of(d, i)) }
	return err
}

// spellings are the words of Kubernetes for the states of a column.
var spellings = map[string]string{"true": "yes", "false": "no"}

func stateCheck(s *stateColumn, op nfdv1alpha1.MatchOp, values []string) (func(cell) bool, error) {
	one := func() error {
		if len(values) != 1 {
			return fmt.Errorf("operator %s of %s takes 1 value, found %d", op, s.Name, len(values))
		}
		return nil
	}
	switch op {
	case nfdv1alpha1.MatchExists:
		return cell.holds, nil
	case nfdv1alpha1.MatchDoesNotExist:
		return func(c cell) bool { return !c.holds() }, nil
	case nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn:
		if len(values) == 0 {
			return nil, fmt.Errorf("operator %s of %s takes values; write for example: %s = yes", op, s.Name, s.Name)
		}
		return func(c cell) bool {
			found := slices.ContainsFunc(values, func(v string) bool {
				v = strings.ToLower(v)
				return strings.EqualFold(cmp.Or(spellings[v], v), c.Text)
			})
			return found == (op == nfdv1alpha1.MatchIn)
		}, nil
	case nfdv1alpha1.MatchInRegexp:
		if err := one(); err != nil {
			return nil, err
		}
		pattern, err := regexp.Compile(values[0])
		if err != nil {
			return nil, fmt.Errorf("invalid regular expression %q: %w", values[0], err)
		}
		return func(c cell) bool { return pattern.MatchString(c.Whole()) }, nil
	case nfdv1alpha1.MatchGt, nfdv1alpha1.MatchGe, nfdv1alpha1.MatchLt, nfdv1alpha1.MatchLe:
		if err := one(); err != nil {
			return nil, err
		}
		limit, err := stateNumber(values[0])
		if err != nil {
			return nil, err
		}
		return func(c cell) bool {
			n, err := strconv.Atoi(cmp.Or(c.Key, c.Text))
			switch {
			case err != nil:
				return false
			case op == nfdv1alpha1.MatchGt:
				return n > limit
			case op == nfdv1alpha1.MatchGe:
				return n >= limit
			case op == nfdv1alpha1.MatchLt:
				return n < limit
			}
			return n <= limit
		}, nil
	}
	return nil, fmt.Errorf("invalid operator %q for %s: use =, !=, ~, >, >=, <, <=, Exists or DoesNotExist", op, s.Name)
}

// stateNumber returns a number, or a duration in seconds. Days are d, as in the columns.
func stateNumber(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 1e6 {
			return n * 24 * 60 * 60, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("invalid number " + strconv.Quote(text) + ": write a number, or a time such as 10m, 2h or 3d")
	}
	return int(d / time.Second), nil
}
