package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxNumber is the maximum N in nN, the N-th number of a node name: n999.
const maxNumber = 999

// reserved are words that cannot be used as variables. vars.NAME reads a variable with such a name.
var reserved = []string{"host", "item", "matched", "node", "nodename", "vars"}

// domains are the domains of the features that Assay publishes. They are used to recognize a reference without its @.
var domains = []string{"cpu", "custom", "kernel", "local", "memory", "network", "pci", "rule", "storage", "system", "usb"}

// name parses a dotted name. If a parenthesis follows, the last word is a function and is left for postfix.
func (p *parser) name() *node {
	start := p.pos
	end := p.dotted()
	if p.pos = end; p.peek() == '(' {
		if dot := strings.LastIndexByte(p.text[start:end], '.'); dot >= 0 {
			p.pos = start + dot
		}
	}
	return p.resolve(start, p.text[start:p.pos])
}

// dotted returns the end of the dotted name that starts at the current position.
func (p *parser) dotted() int {
	end := p.pos
	for {
		for end < len(p.text) && isWord(p.text[end]) {
			end++
		}
		if end+1 >= len(p.text) || p.text[end] != '.' || !isLetter(p.text[end+1]) {
			return end
		}
		end++
	}
}

// resolve returns the node of a dotted name.
func (p *parser) resolve(start int, name string) *node {
	word, rest, more := strings.Cut(name, ".")
	var n *node
	switch word {
	case "node", "nodename":
		p.named = true
		return p.nodeField(start, rest)
	case "host":
		n = p.node(opHost, start, String)
	case "item":
		n = p.node(opItem, start, anyKind)
		n.missing = p.missing("no item")
		if !p.scope.Item {
			p.fail(start, "item exists only in a loop", "")
		}
	case "matched":
		return p.matched(start, rest)
	case "vars":
		n = p.node(opVars, start, anyKind)
		if more {
			return p.dottedVar(n, rest, start+len(name))
		}
		return n
	default:
		if number, ok := numberName(word); ok {
			n = p.node(opNumber, start, Int)
			n.value = OfInt(number)
			n.missing = p.missing("the node's name has no number " + word)
		} else {
			return p.dottedVar(p.node(opVar, start, anyKind), name, start+len(name))
		}
	}
	p.named = true
	return p.attrs(n, rest, start+len(word)+1)
}

// numberName returns which number of the node's name a word refers to; n0 is the last one.
func numberName(word string) (int64, bool) {
	if len(word) < 2 || word[0] != 'n' {
		return 0, false
	}
	number, err := strconv.ParseUint(word[1:], 10, 32)
	return int64(number), err == nil && number <= maxNumber
}

// nodeField parses node, node.name, node.labels or node.annotations, and the elements after it.
func (p *parser) nodeField(start int, path string) *node {
	field, rest, _ := strings.Cut(path, ".")
	pos := p.pos - len(path)
	var n *node
	switch field {
	case "":
		return p.node(opNode, start, String)
	case "name":
		n = p.node(opNode, start, String)
	case "labels":
		n = p.node(opLabels, start, MapKind)
	case "annotations":
		n = p.node(opAnnotations, start, MapKind)
	default:
		p.fail(pos, "node has no field "+shown(field), "name, labels or annotations")
		return p.node(opBad, start, anyKind)
	}
	if field != "name" && !p.scope.Metadata {
		p.fail(pos, "node."+field+" cannot be read in this phase", "the early phase sees features only")
	}
	return p.attrs(n, rest, pos+len(field)+1)
}

// matched parses matched.domain.feature and an optional element.
func (p *parser) matched(start int, path string) *node {
	p.named = true
	n := p.node(opMatched, start, collection)
	domain, rest, _ := strings.Cut(path, ".")
	feature, element, _ := strings.Cut(rest, ".")
	if feature == "" {
		p.fail(start, "matched needs a feature", "matched.DOMAIN.FEATURE")
		return n
	}
	if !p.scope.Matched {
		p.fail(start, "matched needs matchFeatures or matchAny in the same rule", "")
	}
	n.name = strings.ToLower(domain + "." + feature)
	n.missing = p.missing("nothing matched of " + n.name)
	if element == "" {
		return n
	}
	return p.attr(n, element, p.pos-len(element))
}

// dottedVar makes n a variable: the longest declared name with which the dotted name begins. The rest are elements of the variable.
func (p *parser) dottedVar(n *node, name string, end int) *node {
	declared := name
	for !p.scope.Vars[declared] {
		dot := strings.LastIndexByte(declared, '.')
		if dot < 0 {
			return p.variable(n, name, end)
		}
		declared = declared[:dot]
	}
	n = p.variable(n, declared, end)
	if declared == name {
		return n
	}
	rest := name[len(declared)+1:]
	return p.attrs(n, rest, end-len(rest))
}

// variable makes n a variable.
func (p *parser) variable(n *node, name string, end int) *node {
	p.named = true
	if !p.scope.Open && !p.scope.Vars[name] {
		p.unknown(name, end)
	}
	n.op, n.kind, n.name = opVar, anyKind, name
	n.missing = p.missing("no value for " + name)
	return n
}

// attrs adds the elements of a dotted path.
func (p *parser) attrs(n *node, path string, pos int) *node {
	for path != "" && !p.failed {
		name, rest, _ := strings.Cut(path, ".")
		n = p.attr(n, name, pos)
		pos += len(name) + 1
		path = rest
	}
	return n
}

// unknown reports a name that is not declared.
func (p *parser) unknown(name string, end int) {
	e := parseError{pos: strings.LastIndex(p.text[:end], name), message: "unknown name " + shown(name), lenient: true}
	if !p.quiet {
		e.hint = p.nameHint(name, end)
	}
	p.errs = append(p.errs, e)
}

// nameHint returns a hint that suggests a name.
func (p *parser) nameHint(name string, end int) string {
	before := strings.TrimRight(p.text[:end-len(name)], " ")
	word, _, more := strings.Cut(name, ".")
	switch whole := p.dashed(end); {
	case strings.HasPrefix(whole, "@"):
		return fmt.Sprintf("- is subtraction: write @%q for the name", shown(whole[1:]))
	case p.scope.Vars[whole]:
		return fmt.Sprintf("- is subtraction: write vars[%q] for the name", shown(whole))
	case strings.HasSuffix(before, "[") && strings.HasPrefix(p.text[end:], "]"):
		return fmt.Sprintf("a key needs quotes: [%q]", name)
	case strings.HasPrefix(p.text[end:], "(") && functions[name] != nil:
		return "functions follow a value: node." + name + "()"
	case more && slices.Contains(domains, word):
		return "a feature begins with @: @" + shown(name)
	}
	known := slices.Concat(sortedKeys(p.scope.Vars), reserved)
	return hint(name, known)
}

// dashed returns the name that ends at end if - were allowed in names, or "" if there is no - in it.
func (p *parser) dashed(end int) string {
	start := end
	for start > 0 && (isWord(p.text[start-1]) || strings.IndexByte(".-@", p.text[start-1]) >= 0) {
		start--
	}
	if whole := p.text[start:end]; strings.Contains(whole, "-") {
		return whole
	}
	return ""
}

// reference parses @domain.feature, @domain.feature.element or @"…".
func (p *parser) reference() *node {
	start := p.pos
	p.pos++
	p.named = true
	n := p.node(opElement, start, anyKind)
	var path string
	if b := p.peek(); b == '"' || b == '\'' {
		path = p.quoted()
	} else {
		path = p.path()
	}
	if p.failed {
		return n
	}
	ref, err := ParseRef(path)
	if err != nil {
		p.syntax(start, err.Error(), "@DOMAIN.FEATURE or @DOMAIN.FEATURE.ELEMENT")
		return n
	}
	n.name, n.element = ref.Feature, ref.Element
	if ref.Element == "" {
		n.op, n.kind = opFeature, collection
	}
	n.missing = p.missing("no value for " + ref.String())
	return n
}

// path parses the words of a reference. Unlike names, they may begin with a digit.
func (p *parser) path() string {
	start := p.pos
	for {
		word := p.pos
		p.word()
		if p.pos > word && p.peek() == '(' && word > start {
			p.pos = word - 1 // a function follows the dot
			break
		}
		if p.peek() != '.' || p.pos+1 >= len(p.text) || !isWord(p.text[p.pos+1]) {
			break
		}
		p.pos++
	}
	return p.text[start:p.pos]
}

// Ref is a reference to a feature of a node, or to one element of it.
type Ref struct {
	Feature string // domain.feature
	Element string // may contain dots; empty for the whole feature
}

// ParseRef splits domain.feature.element at the first two dots, as NFD does for values that begin with @. The path does not include
// the @, but ParseRef accepts one.
func ParseRef(path string) (Ref, error) {
	path = strings.TrimPrefix(path, "@")
	domain, rest, _ := strings.Cut(path, ".")
	feature, element, dot := strings.Cut(rest, ".")
	if domain == "" || feature == "" || dot && element == "" {
		return Ref{}, fmt.Errorf("@%s names no feature", shown(path))
	}
	return Ref{Feature: domain + "." + feature, Element: element}, nil
}

// String returns the reference in its source form.
func (r Ref) String() string {
	if r.Element == "" {
		return "@" + r.Feature
	}
	return "@" + r.Feature + "." + r.Element
}
