package condition

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/size"
)

// operator describes and implements one operator.
type operator struct {
	name   string
	says   string // description for the reference
	params []args.Param
	// prepare does the work for constant arguments once. It returns the name of an invalid argument.
	prepare func(args.Values, *size.Budget) (prepared any, bad string, err error)
	eval    func(c *Condition, env expr.Env) (bool, error)
}

// operatorList holds all operators in the order of the reference.
var operatorList = []*operator{
	{name: "eq", says: "all values are equal; \"4\" equals 4, but the strings \"2.1\" and \"2.10\" differ", params: compareParams, prepare: prepareVersions, eval: compareWith(equalTo)},
	{name: "lt", says: "each value is less than the one after it; strings that are numbers, such as \"10.5\", compare as numbers", params: compareParams, prepare: prepareVersions, eval: compareWith(lessThan)},
	{name: "gt", says: "each value is greater than the one after it, as in lt", params: compareParams, prepare: prepareVersions, eval: compareWith(greaterThan)},
	{name: "is-empty", says: "the value is missing, or an empty string, list or map", params: valueParams, eval: unary(isEmpty)},
	{name: "is-none", says: "the value is missing", params: valueParams, eval: unary(isNone)},
	{name: "is-true", says: `the value is true, a number other than 0, or the string "true", "yes" or "1"`, params: valueParams, eval: unary(isTrue)},
	{name: "is-false", says: `the value is false, missing, 0, or the string "false", "no" or "0"`, params: valueParams, eval: unary(isFalse)},
	{name: "in-net", says: "the address is in the subnet", params: netParams, prepare: prepareSubnet, eval: inNet},
	{name: "contains", says: "the regular expression matches part of the value", params: regexParams, prepare: prepareRegex(search), eval: matchesRegex(search)},
	{name: "matches", says: "the regular expression matches the whole value", params: regexParams, prepare: prepareRegex(whole), eval: matchesRegex(whole)},
	{name: "one-of", says: "the value equals one of the values", params: oneOfParams, eval: oneOf},
}

var (
	compareParams = []args.Param{
		{Name: "values", Place: expr.Arg, Items: true, Least: 2, Rest: true},
		{Name: "force_strings", Flag: true, Optional: true},
		{Name: "type", Fixed: true, Optional: true, OneOf: []string{"version"}},
	}
	valueParams = []args.Param{{Name: "value", Place: expr.Arg}}
	netParams   = []args.Param{{Name: "address", Place: expr.Arg}, {Name: "subnet", Place: expr.Arg}}
	regexParams = []args.Param{{Name: "value", Place: expr.Arg}, {Name: "regex", Place: expr.Regex}}
	oneOfParams = []args.Param{{Name: "value", Place: expr.Arg}, {Name: "values", Place: expr.Arg, Items: true}}
)

// Positions of the arguments in the lists above.
const (
	argFirst, argSecond          = 0, 1
	argValues, argForce, argType = 0, 1, 2
)

var operators = func() map[string]*operator {
	byName := make(map[string]*operator, len(operatorList))
	for _, o := range operatorList {
		byName[o.name] = o
	}
	return byName
}()

var operatorNames = func() []string {
	names := make([]string, len(operatorList))
	for i, o := range operatorList {
		names[i] = o.name
	}
	return names
}()

// camelCase maps the spelling of NFD's operators (IsTrue) to ours.
var camelCase = func() map[string]string {
	names := map[string]string{}
	for _, o := range operatorList {
		names[camel(o.name)] = o.name
	}
	return names
}()

func camel(name string) string {
	var out strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// Doc describes an operator in the reference.
type Doc struct {
	Name, Says string
	// CamelCase is its alternative spelling.
	CamelCase string
	Args      []args.Param
}

// Operators describes every operator.
func Operators() []Doc {
	docs := make([]Doc, len(operatorList))
	for i, o := range operatorList {
		docs[i] = Doc{Name: o.name, Says: o.says, CamelCase: camel(o.name), Args: o.params}
	}
	return docs
}

// unary returns an operator that tests one value, which may be missing.
func unary(holds func(expr.Value) bool) func(*Condition, expr.Env) (bool, error) {
	return func(c *Condition, env expr.Env) (bool, error) {
		v, err := c.args[argFirst].EvalOrMissing(env)
		return err == nil && holds(v), err
	}
}

func isNone(v expr.Value) bool { return v.Kind() == expr.Missing }

func isEmpty(v expr.Value) bool {
	switch v.Kind() {
	case expr.Missing:
		return true
	case expr.String, expr.ListKind, expr.MapKind:
		return v.Len() == 0
	}
	return false
}

func isTrue(v expr.Value) bool {
	if n, ok := v.Number(); ok && v.Kind() == expr.Int {
		return n != 0
	}
	return v.Truth() || isWord(v, "true", "yes", "1") || isFraction(v, false)
}

func isFalse(v expr.Value) bool {
	switch v.Kind() {
	case expr.Missing:
		return true
	case expr.Bool:
		return !v.Truth()
	case expr.Int:
		n, _ := v.Number()
		return n == 0
	}
	return isWord(v, "false", "no", "0") || isFraction(v, true)
}

// isFraction reports whether the value is a number with a decimal point that is zero (if zero is true) or not zero (otherwise).
// YAML's 2.5 is the string "2.5" here.
func isFraction(v expr.Value, zero bool) bool {
	text, _ := v.Text()
	if v.Kind() != expr.String || !strings.Contains(text, ".") {
		return false
	}
	r, ok := decimal(v)
	return ok && (r.Sign() == 0) == zero
}

// isWord reports whether the value is one of the words, ignoring case.
func isWord(v expr.Value, words ...string) bool {
	text, _ := v.Text()
	for _, word := range words {
		if v.Kind() == expr.String && strings.EqualFold(text, word) {
			return true
		}
	}
	return false
}

func prepareSubnet(a args.Values, _ *size.Budget) (any, string, error) {
	if !a[argSecond].IsConstant() {
		return nil, "", nil
	}
	subnet, err := parseSubnet(a[argSecond].Constant())
	if err != nil {
		return nil, "subnet", err
	}
	return subnet, "", nil
}

// parseSubnet parses a prefix. Host bits are ignored, and an address without a prefix length is a subnet of one.
func parseSubnet(v expr.Value) (netip.Prefix, error) {
	text, ok := v.Text()
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%s is not a subnet", v.Kind())
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr.Unmap().WithZone(""), addr.Unmap().BitLen()), nil
	}
	subnet, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%w: write it as in 10.2.0.0/16 or fd00::/8", err)
	}
	return subnet, nil
}

// inNet compares addresses without their zones. It treats IPv4-mapped IPv6 addresses as IPv4.
func inNet(c *Condition, env expr.Env) (bool, error) {
	address, err := c.args[argFirst].EvalOrMissing(env)
	if err != nil || isNone(address) {
		return false, err
	}
	subnet, prepared := c.prepared.(netip.Prefix)
	if !prepared {
		v, err := c.args[argSecond].EvalOrMissing(env)
		if err != nil || isNone(v) {
			return false, err
		}
		if subnet, err = parseSubnet(v); err != nil {
			return false, err
		}
	}
	text, ok := address.Text()
	if !ok {
		return false, fmt.Errorf("%s is not an address", address.Kind())
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return false, err
	}
	return subnet.Contains(addr.Unmap().WithZone("")), nil
}

// The ways in which a regular expression is applied.
const (
	search = false
	whole  = true
)

// maxRegex is the maximum length of a regular expression. The time of a search is proportional to its length and to that of the
// value.
const maxRegex = 1 << 10

func prepareRegex(anchored bool) func(args.Values, *size.Budget) (any, string, error) {
	return func(a args.Values, budget *size.Budget) (any, string, error) {
		if !a[argSecond].IsConstant() {
			return nil, "", nil
		}
		re, err := compileRegex(a[argSecond].Constant(), anchored, budget)
		if err != nil {
			return nil, "regex", err
		}
		return re, "", nil
	}
}

func compileRegex(v expr.Value, anchored bool, budget *size.Budget) (*regexp.Regexp, error) {
	text, ok := v.Text()
	if !ok {
		return nil, fmt.Errorf("%s is not a regular expression", v.Kind())
	}
	if len(text) > maxRegex {
		return nil, fmt.Errorf("regular expression longer than %d bytes", maxRegex)
	}
	if anchored {
		if _, err := size.Parse(text); err != nil {
			return nil, err // the error quotes the author's expression, without the anchors
		}
		text = `\A(?:` + text + `)\z`
	}
	return size.Compile(text, budget)
}

// bytesPerStep is the number of bytes of a value that a regular expression processes in about the time of one operator of the
// expression language.
const bytesPerStep = 16

func matchesRegex(anchored bool) func(*Condition, expr.Env) (bool, error) {
	return func(c *Condition, env expr.Env) (bool, error) {
		v, err := c.args[argFirst].EvalOrMissing(env)
		if err != nil || isNone(v) {
			return false, err
		}
		text, ok := v.Text()
		if !ok {
			return false, fmt.Errorf("%s is not a string: use loop", v.Kind())
		}
		if !env.Spend(1 + len(text)/bytesPerStep) {
			return false, expr.ErrBudget
		}
		if re, ok := c.prepared.(*regexp.Regexp); ok {
			return re.MatchString(text), nil
		}
		pattern, err := c.args[argSecond].EvalOrMissing(env)
		if err != nil || isNone(pattern) {
			return false, err
		}
		re, err := compileRegex(pattern, anchored, nil)
		if err != nil {
			return false, err
		}
		return re.MatchString(text), nil
	}
}

func oneOf(c *Condition, env expr.Env) (bool, error) {
	v, err := c.args[argFirst].EvalOrMissing(env)
	if err != nil || isNone(v) {
		return false, err
	}
	values, ok, err := c.args[argSecond].Items(env)
	if err != nil || !ok {
		return false, c.noList(env, err)
	}
	if !env.Spend(values.Len()) {
		return false, expr.ErrBudget
	}
	for i := range values.Len() {
		candidate, err := values.At(i)
		if err != nil {
			return false, err
		}
		if same(v, candidate) {
			return true, nil
		}
	}
	return false, nil
}
