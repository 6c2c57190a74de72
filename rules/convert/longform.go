package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// LongForm rewrites the short forms of matchers in a list of rules to the form of the API. NFD allows the short forms only in the
// worker's configuration, although its guide uses them everywhere. The notes list the changes. LongForm does not change input that
// it does not understand: the review of the result reports it with a better message.
//
//	matchExpressions: [AVX, "X=1"]      matchExpressions: {AVX: {op: Exists}, X: {op: In, value: ["1"]}}
//	key: text, 1, true or null          {op: In, value: [text]}, and so on; null is Exists
//	key: [a, b]                         {op: In, value: [a, b]}
//	{op: In, value: a}                  {op: In, value: [a]}
//	{op: In, values: [a]}               {op: In, value: [a]}
//	- pci.device: {vendor: "0fff"}      - feature: pci.device
//	                                      matchExpressions: {vendor: {op: In, value: ["0fff"]}}
func LongForm(rules *yaml.Node) []Note {
	var n notes
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil
	}
	for _, rule := range rules.Content {
		n.where = "rule " + value(rule, "name")
		if terms := child(rule, "matchFeatures"); terms != nil {
			longTerms(terms, &n)
		}
		if any := child(rule, "matchAny"); any != nil && any.Kind == yaml.SequenceNode {
			for _, each := range any.Content {
				if terms := child(each, "matchFeatures"); terms != nil {
					longTerms(terms, &n)
				}
			}
		}
	}
	return n.list
}

// longTerms rewrites a list of terms.
func longTerms(terms *yaml.Node, n *notes) {
	if terms.Kind != yaml.SequenceNode {
		return
	}
	var out []*yaml.Node
	for _, term := range terms.Content {
		if keyed := keyedTerm(term); keyed != nil {
			n.add(term, "wrote feature: and matchExpressions: for %s", term.Content[0].Value)
			out = append(out, keyed...)
			continue
		}
		out = append(out, term)
	}
	terms.Content = out
	for _, term := range out {
		if at := yamltree.Index(term, "matchExpressions"); at >= 0 && !yamltree.IsNull(term.Content[at+1]) {
			term.Content[at+1] = longSet(term.Content[at+1], n)
		}
		if at := yamltree.Index(term, "matchName"); at >= 0 && !yamltree.IsNull(term.Content[at+1]) {
			term.Content[at+1] = longExpression(term.Content[at+1], n)
		}
	}
}

// keyedTerm returns the terms of a map from features to expressions, or nil if term is not such a map.
func keyedTerm(term *yaml.Node) []*yaml.Node {
	if term.Kind != yaml.MappingNode || len(term.Content) == 0 {
		return nil
	}
	var out []*yaml.Node
	for i := 0; i < len(term.Content); i += 2 {
		key, expressions := term.Content[i], term.Content[i+1]
		if !strings.Contains(key.Value, ".") { // feature names contain a dot, field names do not
			return nil
		}
		long := mapping(text("feature"), text(key.Value))
		long.Line, long.Column = key.Line, key.Column
		long.HeadComment = key.HeadComment
		if i == 0 && long.HeadComment == "" {
			long.HeadComment = term.HeadComment
		}
		if !yamltree.IsNull(expressions) {
			set(long, "matchExpressions", expressions)
		}
		out = append(out, long)
	}
	return out
}

// longSet rewrites the expressions of one term.
func longSet(expressions *yaml.Node, n *notes) *yaml.Node {
	switch expressions.Kind {
	case yaml.SequenceNode:
		if slices.ContainsFunc(expressions.Content, notScalar) {
			return expressions
		}
		n.add(expressions, "wrote the list of names as expressions")
		long := mapping()
		long.Line, long.Column = expressions.Line, expressions.Column
		for _, e := range expressions.Content {
			name, want, equals := strings.Cut(scalarText(e), "=")
			long.Content = append(long.Content, commented(text(name), e), exists(equals, want))
		}
		return long
	case yaml.MappingNode:
		for i := 0; i < len(expressions.Content); i += 2 {
			expressions.Content[i+1] = longExpression(expressions.Content[i+1], n)
		}
	}
	return expressions
}

func notScalar(n *yaml.Node) bool { return n.Kind != yaml.ScalarNode }

// exists returns an expression that tests whether an element exists or equals a value.
func exists(equals bool, value string) *yaml.Node {
	if equals {
		return in(quoted(value))
	}
	return flow(mapping(text("op"), text("Exists")))
}

func in(values ...*yaml.Node) *yaml.Node {
	return flow(mapping(text("op"), text("In"), text("value"), flow(sequence(values...))))
}

// longExpression rewrites one expression.
func longExpression(e *yaml.Node, n *notes) *yaml.Node {
	var long *yaml.Node
	switch {
	case yamltree.IsNull(e):
		n.add(e, "wrote a key without a value as Exists")
		long = exists(false, "")
	case e.Kind == yaml.ScalarNode:
		n.add(e, "wrote the value %s as In", e.Value)
		surprise(e, n)
		long = in(quoted(scalarText(e)))
	case e.Kind == yaml.SequenceNode && slices.ContainsFunc(e.Content, func(v *yaml.Node) bool { return v.Kind != yaml.ScalarNode }):
		return e // neither a value nor a list of values
	case e.Kind == yaml.SequenceNode && slices.ContainsFunc(e.Content, notScalar):
		return e
	case e.Kind == yaml.SequenceNode:
		n.add(e, "wrote the list of values as In")
		long = in(texts(e, n)...)
	default:
		return longOperator(e, n)
	}
	long.Line, long.Column = e.Line, e.Column
	long.HeadComment, long.LineComment, long.FootComment = e.HeadComment, e.LineComment, e.FootComment
	return long
}

// longOperator rewrites the values of an expression with an operator.
func longOperator(e *yaml.Node, n *notes) *yaml.Node {
	if at := yamltree.Index(e, "values"); at >= 0 && yamltree.Index(e, "value") < 0 && yamltree.Index(e, "op") >= 0 {
		n.add(e.Content[at], "renamed values: to value:")
		e.Content[at].Value = "value"
	}
	at := yamltree.Index(e, "value")
	if at < 0 || yamltree.IsNull(e.Content[at+1]) {
		return e
	}
	switch v := e.Content[at+1]; v.Kind {
	case yaml.ScalarNode:
		n.add(v, "wrote value: %s as a list", v.Value)
		surprise(v, n)
		list := flow(sequence(quoted(scalarText(v))))
		list.Line, list.Column, list.LineComment = v.Line, v.Column, v.LineComment
		e.Content[at+1] = list
	case yaml.SequenceNode:
		v.Content = texts(v, n)
	}
	return e
}

// texts converts every scalar of a list to a string.
func texts(list *yaml.Node, n *notes) []*yaml.Node {
	out := make([]*yaml.Node, len(list.Content))
	for i, v := range list.Content {
		out[i] = v
		if v.Kind == yaml.ScalarNode && !yamltree.IsString(v) && !yamltree.IsNull(v) {
			n.add(v, "put %s in quotes", v.Value)
			surprise(v, n)
			out[i] = commented(quoted(scalarText(v)), v)
		}
	}
	return out
}

// surprise adds a note on a number whose YAML value differs from its text.
func surprise(v *yaml.Node, n *notes) {
	if read := scalarText(v); v.ShortTag() == "!!int" && read != v.Value {
		n.add(v, "%s without quotes is the number %s; quote it to keep it a string", v.Value, read)
	}
}

// scalarText returns the string that NFD uses for a scalar: whole numbers in decimal, other numbers in the shortest form.
func scalarText(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return strconv.FormatInt(i, 10)
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	case "!!bool":
		return strings.ToLower(n.Value)
	}
	return n.Value
}

// commented copies the position and the comments of an old node to a new one.
func commented(n, old *yaml.Node) *yaml.Node {
	n.Line, n.Column = old.Line, old.Column
	n.HeadComment, n.LineComment, n.FootComment = old.HeadComment, old.LineComment, old.FootComment
	return n
}

var upperHex = regexp.MustCompile(`^[0-9A-Fa-f]{2,4}$`)

// hexAttributes are attributes whose values the kernel writes as lower-case hexadecimal digits.
var hexAttributes = []string{"class", "vendor", "device", "subsystem_vendor", "subsystem_device"}

// LowerHex rewrites the IDs of PCI and USB devices in a list of rules in long form to lower case: IDs with capital letters match no
// device.
func LowerHex(rules *yaml.Node) []Note {
	var n notes
	var visit func(node *yaml.Node)
	visit = func(node *yaml.Node) {
		if feature := strings.ToLower(value(node, "feature")); feature == "pci.device" || feature == "usb.device" {
			for _, attribute := range hexAttributes {
				lowerValues(child(child(node, "matchExpressions"), attribute), &n)
			}
		}
		for _, c := range node.Content {
			visit(c)
		}
	}
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil
	}
	for _, rule := range rules.Content {
		n.where = "rule " + value(rule, "name")
		visit(rule)
	}
	return n.list
}

func lowerValues(expression *yaml.Node, n *notes) {
	op, values := value(expression, "op"), child(expression, "value")
	if op != "In" && op != "NotIn" || values == nil {
		return
	}
	for _, v := range values.Content {
		if lower := strings.ToLower(v.Value); lower != v.Value && upperHex.MatchString(v.Value) {
			n.add(v, "wrote %s in lower case", v.Value)
			v.Value = lower
		}
	}
}
