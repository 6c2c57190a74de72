package tmpl

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/assay-project/assay/rules/lang/size"
)

// Compile compiles a template. The template is nil unless all problems are warnings. All problems are reported at once, except for
// syntax errors: the parser stops at the first one.
func Compile(source string, opt Options) (*Template, []Diagnostic) {
	c := &compiler{t: &Template{source: source, opt: opt}}
	if trees, ok := c.parse(); ok {
		c.compile(trees)
		c.warnOfBareLines(trees[mainName])
	}
	return c.finish()
}

// finish returns the template, or nil if there are errors, and all problems in source order.
func (c *compiler) finish() (*Template, []Diagnostic) {
	slices.SortStableFunc(c.problems, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	for _, p := range c.problems {
		if !p.Warning {
			return nil, c.problems
		}
	}
	t := c.t
	for _, r := range t.fields {
		r.element.Line, r.element.Column = c.place(r.at)
		t.elements = append(t.elements, r.element)
	}
	if len(t.reads) > 0 {
		t.paths = make([]DataPath, len(t.reads))
	}
	for i, r := range t.reads {
		t.paths[i] = r.path
		t.paths[i].Line, t.paths[i].Column = c.place(r.at)
	}
	return t, c.problems
}

// compiler converts the parser's tree to statements and expressions.
type compiler struct {
	t        *Template
	problems []Diagnostic

	scope []variable // visible variables; a name may occur more than once
	def   *definition
	dot   position // position of the dot, as far as known
	inner int      // number of enclosing blocks
	main  bool     // set outside of all definitions
	items []item   // variables for the elements of enclosing ranges
	trees map[string]*parse.Tree
	lines []int // offset of each line
}

// variable is a variable and its slot.
type variable struct {
	name string
	slot int
}

// item is the slot of a variable that holds an element of a feature.
type item struct {
	slot    int
	feature string
}

// position is a location in the data: the root, a domain, or unknown.
type position struct {
	known bool
	path  []string
	// element is the feature of which the dot is an element, or "".
	element string
}

func (c *compiler) problem(at int, format string, args ...any) {
	line, column := c.place(at)
	c.problems = append(c.problems, Diagnostic{Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
}

// place returns the line and column of a byte of the source. Unlike Template.place, it computes the lines only once.
func (c *compiler) place(at int) (line, column int) {
	if c.lines == nil {
		c.lines = make([]int, 1, 1+strings.Count(c.t.source, "\n"))
		for i, b := range []byte(c.t.source) {
			if b == '\n' {
				c.lines = append(c.lines, i+1)
			}
		}
	}
	at = min(max(at, 0), len(c.t.source))
	line = sort.SearchInts(c.lines, at+1)
	return line, at - c.lines[line-1] + 1
}

// mainName is the parser's name of the source outside of all definitions. No define uses it by accident.
const mainName = "·"

// parserPlace matches the start of errors of the standard parser.
var parserPlace = regexp.MustCompile(`^template: ` + mainName + `:(\d+)(?::(\d+))?: `)

func (c *compiler) parse() (map[string]*parse.Tree, bool) {
	source := c.t.source
	if len(source) > MaxSource {
		c.problem(0, "the template is %d bytes long, at most %d are allowed", len(source), MaxSource)
		return nil, false
	}
	if at, deep := tooDeep(source); deep {
		c.problem(at, "blocks or parentheses nest more than %d deep", MaxDepth)
		return nil, false
	}
	trees, err := parseSource(source)
	if err == nil {
		return trees, true
	}
	p := Diagnostic{Line: 1, Column: 1, Message: err.Error()}
	if m := parserPlace.FindStringSubmatch(p.Message); m != nil {
		p.Message = p.Message[len(m[0]):]
		p.Line, _ = strconv.Atoi(m[1])
	}
	c.problems = append(c.problems, p)
	return nil, false
}

// parseSource parses a source into the trees of its definitions, by their names.
func parseSource(source string) (map[string]*parse.Tree, error) {
	tree := parse.New(mainName)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	_, err := tree.Parse(source, "", "", trees)
	return trees, err
}

func (c *compiler) compile(trees map[string]*parse.Tree) {
	c.trees = trees
	c.t.main = &definition{slots: 1}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		if name == mainName {
			c.t.main = c.definition(trees[name], true)
			continue
		}
		if c.t.defs == nil {
			c.t.defs = map[string]*definition{}
		}
		c.t.defs[name] = c.definition(trees[name], false)
	}
	c.t.reads = distinct(c.t.reads)
}

func (c *compiler) definition(tree *parse.Tree, isMain bool) *definition {
	c.def = &definition{slots: 1}
	c.scope = append(c.scope[:0], variable{"$", 0})
	c.dot, c.inner, c.main = position{known: isMain}, 0, isMain
	if !isMain {
		c.inner = 1
	}
	c.def.body = c.list(tree.Root)
	return c.def
}

// within compiles the body of a block. Variables of the block end with it.
func (c *compiler) within(dot position, list *parse.ListNode) block {
	mark, outer := len(c.scope), c.dot
	c.dot = dot
	c.inner++
	out := c.list(list)
	c.inner--
	c.dot = outer
	c.scope = c.scope[:mark]
	return out
}

func (c *compiler) list(list *parse.ListNode) block {
	if list == nil {
		return nil
	}
	out := make(block, 0, len(list.Nodes))
	for _, node := range list.Nodes {
		if st := c.stmt(node); st != nil {
			out = append(out, st)
		}
	}
	return fuse(out)
}

func (c *compiler) stmt(node parse.Node) stmt {
	at := int(node.Position())
	switch n := node.(type) {
	case *parse.TextNode:
		return &textStmt{at, string(n.Text)}
	case *parse.ActionNode:
		pipe := c.pipe(n.Pipe)
		if len(n.Pipe.Decl) > 0 {
			return &letStmt{at, pipe}
		}
		return &printStmt{at, pipe}
	case *parse.IfNode:
		return c.ifStmt(&n.BranchNode, false)
	case *parse.WithNode:
		return c.ifStmt(&n.BranchNode, true)
	case *parse.RangeNode:
		return c.rangeStmt(n)
	case *parse.BreakNode:
		return jumpStmt{doBreak}
	case *parse.ContinueNode:
		return jumpStmt{doContinue}
	case *parse.TemplateNode:
		if c.trees[n.Name] == nil {
			c.problem(at, "template %q is not defined", n.Name)
		}
		st := &callStmt{at: at, name: n.Name}
		if n.Pipe != nil {
			st.pipe = c.pipe(n.Pipe)
		}
		return st
	case *parse.CommentNode:
		return nil
	}
	c.problem(at, "unexpected %s", node)
	return nil
}

func (c *compiler) ifStmt(n *parse.BranchNode, with bool) stmt {
	mark := len(c.scope)
	defer func() { c.scope = c.scope[:mark] }()
	st := &ifStmt{at: int(n.Position()), with: with, pipe: c.pipe(n.Pipe)}
	dot := c.dot
	if with {
		dot = c.follow(n.Pipe)
	}
	st.then = c.within(dot, n.List)
	st.else_ = c.within(c.dot, n.ElseList)
	return st
}

func (c *compiler) rangeStmt(n *parse.RangeNode) stmt {
	mark := len(c.scope)
	defer func() { c.scope = c.scope[:mark] }()
	st := &rangeStmt{at: int(n.Position()), pipe: c.pipe(n.Pipe), key: -1, item: -1}
	switch decl := n.Pipe.Decl; len(decl) {
	case 1:
		st.item = c.lookup(decl[0])
	case 2:
		st.key, st.item = c.lookup(decl[0]), c.lookup(decl[1])
	}
	feature := c.feature(n.Pipe)
	if st.item >= 0 && feature != "" {
		c.items = append(c.items, item{st.item, feature})
		defer func() { c.items = c.items[:len(c.items)-1] }()
	}
	st.body = c.within(position{element: feature}, n.List)
	st.else_ = c.within(c.dot, n.ElseList)
	return st
}

// pipe compiles a pipeline: each command becomes the last argument of the next one. Its variables are visible after it.
func (c *compiler) pipe(n *parse.PipeNode) expr {
	var out expr
	for _, cmd := range n.Cmds {
		out = c.command(cmd, out)
	}
	if len(n.Decl) == 0 {
		return out
	}
	set := &setExpr{pipe: out}
	for _, v := range n.Decl {
		if !n.IsAssign {
			c.scope = append(c.scope, variable{v.Ident[0], c.def.slots})
			c.def.slots++
		}
		set.slots = append(set.slots, c.lookup(v))
	}
	return set
}

// lookup returns the slot of a variable.
func (c *compiler) lookup(n *parse.VariableNode) int {
	for i := len(c.scope) - 1; i >= 0; i-- {
		if c.scope[i].name == n.Ident[0] {
			return c.scope[i].slot
		}
	}
	c.problem(int(n.Position()), "undefined variable %s", n.Ident[0])
	return 0
}

func (c *compiler) command(cmd *parse.CommandNode, final expr) expr {
	if id, ok := cmd.Args[0].(*parse.IdentifierNode); ok {
		return c.call(id, cmd.Args[1:], final)
	}
	if len(cmd.Args) > 1 || final != nil {
		c.problem(int(cmd.Args[0].Position()), "can't give arguments to %s, which is not a function", cmd.Args[0])
		return &constExpr{}
	}
	if _, ok := cmd.Args[0].(*parse.NilNode); ok {
		c.problem(int(cmd.Args[0].Position()), "nil is not a command")
	}
	return c.operand(cmd.Args[0])
}

func (c *compiler) operand(node parse.Node) expr {
	at := int(node.Position())
	switch n := node.(type) {
	case *parse.DotNode:
		return dotExpr{}
	case *parse.NilNode:
		return &constExpr{}
	case *parse.BoolNode:
		return &constExpr{boolean(n.True)}
	case *parse.StringNode:
		return &constExpr{text(n.Text)}
	case *parse.NumberNode:
		return &constExpr{c.number(n)}
	case *parse.FieldNode:
		if first := "." + n.Ident[0]; len(n.Ident) > 1 && strings.HasSuffix(c.t.source[:at], first) {
			at -= len(first) // the parser gives the position of the second name
		}
		c.reads(at, c.dot, n.Ident)
		c.field(at, c.dot.element, append([]string{""}, n.Ident...))
		return &fieldExpr{at: at, path: n.Ident}
	case *parse.VariableNode:
		return c.variable(n)
	case *parse.ChainNode:
		if _, ok := n.Node.(*parse.NilNode); ok {
			c.problem(at, "nil has no fields")
		}
		return &fieldExpr{at: at, base: c.operand(n.Node), path: n.Field}
	case *parse.PipeNode:
		return c.pipe(n)
	case *parse.IdentifierNode:
		return c.call(n, nil, nil)
	}
	c.problem(at, "unexpected %s", node)
	return &constExpr{}
}

func (c *compiler) variable(n *parse.VariableNode) expr {
	v := varExpr{c.lookup(n)}
	if len(n.Ident) == 1 {
		return v
	}
	for _, item := range c.items {
		if item.slot == v.slot {
			c.field(int(n.Position()), item.feature, n.Ident)
		}
	}
	if n.Ident[0] == "$" && c.main {
		c.reads(int(n.Position()), position{known: true}, n.Ident[1:])
	}
	return &fieldExpr{at: int(n.Position()), base: v, path: n.Ident[1:]}
}

func (c *compiler) number(n *parse.NumberNode) value {
	switch {
	case n.IsInt && (!n.IsFloat || !strings.ContainsAny(n.Text, ".eEpP") || strings.HasPrefix(strings.ToLower(n.Text), "0x") || n.Text[0] == '\''):
		return integer(n.Int64)
	case n.IsFloat && !n.IsUint:
		return number(n.Float64)
	case n.IsFloat && strings.ContainsAny(n.Text, ".eEpP"):
		return number(n.Float64)
	}
	c.problem(int(n.Position()), "%s is not a number that templates can use", n.Text)
	return value{}
}

func (c *compiler) call(id *parse.IdentifierNode, nodes []parse.Node, final expr) expr {
	at := int(id.Position())
	args := make([]expr, 0, len(nodes)+1)
	for _, node := range nodes {
		args = append(args, c.operand(node))
	}
	if final != nil {
		args = append(args, final)
	}
	if id.Ident == "and" || id.Ident == "or" {
		if len(args) == 0 {
			c.problem(at, "%s needs an argument", id.Ident)
		}
		return &logicExpr{or: id.Ident == "or", args: args}
	}
	fn := functions[id.Ident]
	switch id.Ident {
	case "node", "n":
		c.t.readsNode = true
	case "var":
		c.t.readsVars = true
	}
	if fn == nil {
		c.problem(at, "%s", whyNot(id.Ident))
		return &constExpr{}
	}
	if err := fn.takes(len(args)); err != nil {
		c.problem(at, "%s", err)
	}
	if fn.pattern >= 0 && fn.pattern < len(args) {
		c.pattern(at, args[fn.pattern])
	}
	if id.Ident == "index" && len(nodes) >= 3 {
		c.indexes(at, nodes)
	}
	return &callExpr{at: at, fn: fn, args: args}
}

// pattern compiles a literal regular expression when the rule is compiled.
func (c *compiler) pattern(at int, arg expr) {
	lit, ok := arg.(*constExpr)
	if !ok || lit.v.kind != kindString {
		return
	}
	if c.t.regexps[lit.v.str] != nil || c.t.opt.Size.Over() {
		return
	}
	re, err := compilePattern(lit.v.str, c.t.opt.Size)
	if err != nil {
		c.problem(at, "%s", err)
		return
	}
	if c.t.regexps == nil {
		c.t.regexps = map[string]*regexp.Regexp{}
	}
	c.t.regexps[lit.v.str] = re
}

func compilePattern(pattern string, budget *size.Budget) (*regexp.Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("the pattern is %d bytes long, at most %d are allowed", len(pattern), MaxPattern)
	}
	re, err := size.Compile(pattern, budget)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re, nil
}
