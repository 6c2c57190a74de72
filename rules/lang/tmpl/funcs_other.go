package tmpl

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/assay-project/assay/rules/version"
)

var patternFunctions = []function{
	{"regexMatch", 2, 2, 0, func(c *call) value { return boolean(c.regexp().MatchString(c.str(1))) }},
	{"regexFind", 2, 2, 0, func(c *call) value { return text(c.regexp().FindString(c.str(1))) }},
	{"regexFindAll", 3, 3, 0, func(c *call) value {
		re, s := c.regexp(), c.str(1)
		return c.texts(re.FindAllString(s, c.limited(c.int(2), s)))
	}},
	{"regexReplaceAll", 3, 3, 0, func(c *call) value { return c.replaced(c.regexp().ReplaceAllString) }},
	{"regexReplaceAllLiteral", 3, 3, 0, func(c *call) value { return c.replaced(c.regexp().ReplaceAllLiteralString) }},
	{"regexSplit", 3, 3, 0, func(c *call) value {
		re, s := c.regexp(), c.str(1)
		return c.texts(re.Split(s, c.limited(c.int(2), s)))
	}},
	{"regexQuoteMeta", 1, 1, -1, func(c *call) value { return text(regexp.QuoteMeta(c.str(0))) }},
}

// regexp returns the first argument as a pattern. A literal pattern was compiled with the rule. The cost of matching the second
// argument, in proportion to both lengths, is counted here.
func (c *call) regexp() *regexp.Regexp {
	p := c.str(0)
	c.s.work(c.at, len(c.str(1))*(len(p)/8+1))
	if re := c.s.t.regexps[p]; re != nil {
		return re
	}
	c.s.work(c.at, costPattern*bytesPerStep)
	re, err := compilePattern(p, nil)
	if err != nil {
		c.fail("%s", err)
	}
	return re
}

// limited limits the number of matches and counts their memory.
func (c *call) limited(n int, s string) int {
	most := len(s) + 1
	if n >= 0 {
		most = min(n, most)
	}
	c.s.take(c.at, 16*most)
	return n
}

// replaced replaces all matches. It checks the maximum size of the result before creating it: each match may be replaced by the
// replacement with every $ expanded to the whole subject.
func (c *call) replaced(replace func(s, with string) string) value {
	s, with := c.str(1), c.str(2)
	most := len(s) + (len(s)+1)*len(with)
	if refs := strings.Count(with, "$"); refs > 0 {
		most += refs * len(s)
	}
	c.s.work(c.at, min(most, 4*MaxOutput))
	if most > 4*MaxOutput {
		c.fail("the result may be longer than %d bytes", 4*MaxOutput)
	}
	return text(replace(s, with))
}

var otherFunctions = []function{
	{"default", 1, -1, -1, func(c *call) value {
		if len(c.args) < 2 || !c.args[1].truth() {
			return c.args[0]
		}
		return c.args[1]
	}},
	{"empty", 1, 1, -1, func(c *call) value { return boolean(!c.args[0].truth()) }},
	{"coalesce", 0, -1, -1, func(c *call) value {
		for _, v := range c.args {
			if v.truth() {
				return v
			}
		}
		return value{}
	}},
	{"ternary", 3, 3, -1, func(c *call) value {
		if c.args[2].kind != kindBool {
			c.fail("argument 3 is a %s, expected a bool", c.args[2].typeName())
		}
		if c.args[2].truth() {
			return c.args[0]
		}
		return c.args[1]
	}},
	{"fail", 1, 1, -1, func(c *call) value {
		fail(c.at, "%s", c.str(0))
		return value{}
	}},
	{"kindOf", 1, 1, -1, func(c *call) value { return text(kindName(c.args[0])) }},
	{"kindIs", 2, 2, -1, func(c *call) value { return boolean(c.str(0) == kindName(c.args[1])) }},
	{"b64enc", 1, 1, -1, func(c *call) value { return text(base64.StdEncoding.EncodeToString([]byte(c.str(0)))) }},
	{"b64dec", 1, 1, -1, func(c *call) value {
		out, err := base64.StdEncoding.DecodeString(c.str(0))
		if err != nil {
			c.fail("%s", err)
		}
		return text(string(out))
	}},
	{"sha1sum", 1, 1, -1, func(c *call) value {
		sum := sha1.Sum([]byte(c.str(0)))
		return text(hex.EncodeToString(sum[:]))
	}},
	{"sha256sum", 1, 1, -1, func(c *call) value {
		sum := sha256.Sum256([]byte(c.str(0)))
		return text(hex.EncodeToString(sum[:]))
	}},
	{"toJson", 1, 1, -1, func(c *call) value {
		out, err := json.Marshal(c.natives(c.args, 1)[0])
		if err != nil {
			c.fail("%s", err)
		}
		return text(string(out))
	}},
	{"semver", 1, 1, -1, semver},
	{"semverCompare", 2, 2, -1, func(c *call) value {
		v, err := version.Parse(c.str(1))
		if err != nil {
			c.fail("%s", err)
		}
		ok, err := satisfies(v, c.str(0))
		if err != nil {
			c.fail("%s", err)
		}
		return boolean(ok)
	}},
	{"node", 0, 0, -1, func(c *call) value { return text(c.env().NodeName()) }},
	{"n", 1, 1, -1, func(c *call) value { return integer(c.nodeNumber(c.int(0))) }},
	{"var", 1, 1, -1, func(c *call) value {
		v, ok := c.env().Var(c.str(0))
		if !ok {
			c.fail("no earlier rule set %q", shown(c.str(0)))
		}
		if c.s.data.asIs {
			return text(v)
		}
		return text(oneLine(v))
	}},
}

// kindName returns the kind of the Go value as in package reflect.
func kindName(v value) string {
	switch v.kind {
	case kindNil:
		return "invalid"
	case kindList:
		return "slice"
	}
	return v.typeName()
}

func (c *call) env() Env {
	if c.s.env == nil {
		c.fail("the node is unknown here")
	}
	return c.s.env
}

// nodeNumber returns the i-th number in the node's name, counted from 1; 0 is the last one. It equals nI in expressions.
func (c *call) nodeNumber(i int) int64 {
	name := c.env().NodeName()
	var numbers []string
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r < '0' || r > '9' }) {
		numbers = append(numbers, word)
	}
	if i == 0 {
		i = len(numbers)
	}
	if i < 1 || i > len(numbers) {
		c.fail("the node name %q has no number %d", name, i)
	}
	n, err := strconv.ParseInt(numbers[i-1], 10, 64)
	if err != nil {
		c.fail("the number %s is too large", numbers[i-1])
	}
	return n
}

// semver parses a version. Templates print it in full, and read its Major, Minor, Patch, Prerelease, Metadata and Original.
func semver(c *call) value {
	s := c.str(0)
	v, err := version.Parse(s)
	if err != nil {
		c.fail("%s", err)
	}
	core, meta, _ := strings.Cut(s, "+")
	_, pre, _ := strings.Cut(core, "-")
	out := dict{"Original": text(s), "Prerelease": text(pre), "Metadata": text(meta)}
	for i, name := range [...]string{"Major", "Minor", "Patch"} {
		n, _ := strconv.ParseInt(strings.Split(v.String(), ".")[i], 10, 64)
		out[name] = integer(n)
	}
	return versionOf(out)
}

// version returns the text of a version in full: 6.1.0 of 6.1.
func (d dict) version() string {
	b := []byte{}
	for i, name := range [...]string{"Major", "Minor", "Patch"} {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, d[name].int(), 10)
	}
	for _, suffix := range [...]string{"-Prerelease", "+Metadata"} {
		if s := d[suffix[1:]].str; s != "" {
			b = append(append(b, suffix[0]), s...)
		}
	}
	return string(b)
}

// satisfies reports whether a version meets a constraint: alternatives joined by ||, each a list of comparisons joined
// by commas or spaces, with the operators = != > < >= <= ~ and ^.
func satisfies(v version.V, constraint string) (bool, error) {
	for alternative := range strings.SplitSeq(constraint, "||") {
		all := true
		terms := operatorSpace.ReplaceAllString(strings.ReplaceAll(alternative, ",", " "), "$1")
		for term := range strings.FieldsSeq(terms) {
			ok, err := compare(v, term)
			if err != nil {
				return false, fmt.Errorf("the constraint %q: %w", shown(constraint), err)
			}
			all = all && ok
		}
		if all {
			return true, nil
		}
	}
	return false, nil
}

// operatorSpace matches the spaces after an operator.
var operatorSpace = regexp.MustCompile(`([=!<>~^]+)\s+`)

func compare(v version.V, term string) (bool, error) {
	op := term[:len(term)-len(strings.TrimLeft(term, "=!<>~^"))]
	numbers := strings.Split(strings.TrimPrefix(term[len(op):], "v"), ".")
	for i, n := range numbers { // 1.2.x and 1.* are ranges, as are ~ and ^
		if n == "x" || n == "X" || n == "*" {
			if numbers = numbers[:i]; op == "" || op == "=" {
				op = "~"
			}
			break
		}
	}
	if len(numbers) == 0 {
		return true, nil
	}
	low, err := version.Parse(strings.Join(numbers, "."))
	if err != nil {
		return false, err
	}
	order := v.Compare(low)
	switch op {
	case "", "=", "==":
		return order == 0, nil
	case "!=":
		return order != 0, nil
	case ">":
		return order > 0, nil
	case "<":
		return order < 0, nil
	case ">=", "=>":
		return order >= 0, nil
	case "<=", "=<":
		return order <= 0, nil
	case "~", "~>", "^":
		high, err := version.Parse(next(numbers, op == "^"))
		if err != nil {
			return false, err
		}
		return order >= 0 && v.Compare(high) < 0, nil
	}
	return false, fmt.Errorf("invalid operator %q of a version: use =, !=, <, <=, >, >=, ~ or ^", op)
}

// next returns the first version after a range: ~1.2.3 and ~1.2 end before 1.3, ~1 before 2; ^1.2.3 ends before 2, ^0.2.3 before
// 0.3.
func next(numbers []string, caret bool) string {
	at := min(len(numbers), 2) - 1
	if caret {
		at = 0
		for at < len(numbers)-1 && strings.Trim(numbers[at], "0") == "" {
			at++
		}
	}
	out := append([]string(nil), numbers[:at+1]...)
	n, _ := strconv.ParseUint(strings.TrimRightFunc(out[at], func(r rune) bool { return r < '0' || r > '9' }), 10, 63)
	out[at] = strconv.FormatUint(n+1, 10)
	return strings.Join(out, ".")
}
