package tmpl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// function is an allowed function.
type function struct {
	name     string
	min, max int // number of arguments; a negative max means no limit
	pattern  int // index of the argument that is a regular expression, or -1
	run      func(c *call) value
}

// functions holds all allowed functions: Go's built-in functions, the deterministic and cheap functions of Sprig, and the names
// that templates share with expressions. leftOut lists functions of NFD's templates that are not allowed.
var functions = table(builtins, stringFunctions, numberFunctions, listFunctions, dictFunctions, patternFunctions, otherFunctions)

func table(groups ...[]function) map[string]*function {
	out := map[string]*function{}
	for _, group := range groups {
		for i := range group {
			out[group[i].name] = &group[i]
		}
	}
	for alias, name := range aliases {
		fn := *out[name]
		fn.name = alias
		out[alias] = &fn
	}
	return out
}

// aliases are alternative names in Sprig. Sprig's must… functions return errors that the plain ones ignore; here all functions
// return them.
var aliases = map[string]string{
	"tuple": "list", "push": "append", "biggest": "max",
	"mustAppend": "append", "mustPush": "append", "mustPrepend": "prepend", "mustFirst": "first", "mustLast": "last",
	"mustRest": "rest", "mustInitial": "initial", "mustReverse": "reverse", "mustUniq": "uniq", "mustWithout": "without",
	"mustHas": "has", "mustCompact": "compact", "mustToJson": "toJson", "mustRegexMatch": "regexMatch",
	"mustRegexFind": "regexFind", "mustRegexFindAll": "regexFindAll", "mustRegexReplaceAll": "regexReplaceAll",
	"mustRegexReplaceAllLiteral": "regexReplaceAllLiteral", "mustRegexSplit": "regexSplit",
}

// Functions returns the names of all functions that templates may use, sorted.
func Functions() []string {
	names := append(slices.Collect(maps.Keys(functions)), "and", "or")
	slices.Sort(names)
	return names
}

// LeftOut describes a function of NFD's templates that is not available.
type LeftOut struct {
	Names []string
	// Why is the reason.
	Why string
	// Instead is the replacement; it may be empty.
	Instead string
}

var leftOut = []LeftOut{
	{
		Names:   []string{"randAlpha", "randAlphaNum", "randAscii", "randBytes", "randInt", "randNumeric", "shuffle", "uuidv4"},
		Why:     "it is random, so the node would change with every evaluation",
		Instead: "derive the string from the node with sha256sum",
	},
	{
		Names: []string{"now", "ago", "date", "dateInZone", "date_in_zone", "dateModify", "date_modify", "mustDateModify", "must_date_modify",
			"duration", "durationRound", "htmlDate", "htmlDateInZone", "toDate", "mustToDate", "unixEpoch"},
		Why:     "it depends on the clock, so the node would change without a cause",
		Instead: "use an expiry time in a feature file",
	},
	{
		Names:   []string{"env", "expandenv", "getHostByName"},
		Why:     "it reads the environment of the controller and not of the node",
		Instead: "publish the value as a feature",
	},
	{
		Names:   []string{"osBase", "osClean", "osDir", "osExt", "osIsAbs"},
		Why:     "it depends on the operating system of the controller",
		Instead: "use base, clean, dir, ext or isAbs",
	},
	{
		Names: []string{"bcrypt", "htpasswd", "derivePassword", "encryptAES", "decryptAES", "genPrivateKey", "genCA", "genCAWithKey",
			"genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "buildCustomCert"},
		Why:     "it is slow by design, and its result does not belong on a node",
		Instead: "use sha256sum for a short string that identifies a long one",
	},
	{
		Names:   []string{"set", "unset", "merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite", "deepCopy", "mustDeepCopy"},
		Why:     "it modifies a value that other parts of the template may use",
		Instead: "make a new one with dict, pick or omit",
	},
	{
		Names: []string{"typeOf", "typeIs", "typeIsLike", "deepEqual"},
		Why:   "it shows types of the Go program behind the template", Instead: "use kindOf, kindIs or eq",
	},
	{
		Names: []string{"indent", "nindent", "wrap", "wrapWith", "abbrev", "abbrevboth", "initials", "swapcase", "camelcase", "kebabcase",
			"snakecase", "plural", "hello"},
		Why: "it formats paragraphs, but a template writes one key=value per line", Instead: "use replace, lower, trunc or regexReplaceAll",
	},
	{
		Names: []string{"js", "urlParse", "urlJoin", "mustFromJson", "fromJson", "mustToPrettyJson", "toPrettyJson", "mustToRawJson",
			"toRawJson", "b32enc", "b32dec", "toDecimal", "chunk", "mustChunk", "mustSlice", "sha512sum", "adler32sum", "all", "any", "pluck", "dig",
			"concat", "untilStep"},
		Why: "no rule is known to need it", Instead: "open an issue if your rules need it",
	},
	{Names: []string{"call"}, Why: "there are no values that are functions", Instead: ""},
}

// LeftOutFunctions returns the functions of NFD's templates that are not available, and why. The documentation is generated from
// it.
func LeftOutFunctions() []LeftOut { return slices.Clone(leftOut) }

// whyNot returns the reason why a function cannot be used.
func whyNot(name string) string {
	for _, group := range leftOut {
		if !slices.Contains(group.Names, name) || functions[name] != nil {
			continue
		}
		message := fmt.Sprintf("the function %q is not available: %s", name, group.Why)
		if group.Instead != "" {
			message += "; " + group.Instead
		}
		return message
	}
	for _, known := range Functions() {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf("unknown function %q; did you mean %q?", name, known)
		}
	}
	return fmt.Sprintf("unknown function %q", name)
}

// takes returns an error if a function cannot be called with n arguments.
func (f *function) takes(n int) error {
	switch {
	case n < f.min && f.max == f.min, n > f.max && f.max == f.min:
		return fmt.Errorf("%s takes %d arguments, not %d", f.name, f.min, n)
	case n < f.min:
		return fmt.Errorf("%s takes at least %d arguments, not %d", f.name, f.min, n)
	case f.max >= 0 && n > f.max:
		return fmt.Errorf("%s takes at most %d arguments, not %d", f.name, f.max, n)
	}
	return nil
}

// call is a call of a function with its arguments.
type call struct {
	s    *state
	at   int
	name string
	args []value
}

func (c *call) fail(format string, args ...any) {
	fail(c.at, "%s: %s", c.name, fmt.Sprintf(format, args...))
}

// str returns an argument as a string.
func (c *call) str(i int) string {
	v := c.args[i]
	if v.kind != kindString {
		c.fail("argument %d is a %s, expected a string", i+1, v.typeName())
	}
	c.s.work(c.at, len(v.str))
	return v.str
}

// int returns an argument as an integer.
func (c *call) int(i int) int {
	v := c.args[i]
	if v.kind != kindInt {
		c.fail("argument %d is a %s, expected an int", i+1, v.typeName())
	}
	return int(v.int())
}

// list returns an argument as a list and counts its items as work.
func (c *call) list(i int) value {
	v := c.args[i]
	if v.kind != kindList {
		c.fail("argument %d is a %s, expected a list", i+1, v.typeName())
	}
	n, _ := v.length()
	c.s.work(c.at, n*bytesPerStep)
	return v
}

// dict returns an argument as a map.
func (c *call) dict(i int) value {
	v := c.args[i]
	if !v.isMap() {
		c.fail("argument %d is a %s, expected a map", i+1, v.typeName())
	}
	n, _ := v.length()
	c.s.work(c.at, n*bytesPerStep)
	return v
}

// valueSize is the size in bytes of a value in a list.
const valueSize = 48

// make returns a list of n empty values.
func (c *call) make(n int) []value {
	c.s.work(c.at, n*bytesPerStep)
	c.s.take(c.at, n*valueSize)
	return make([]value, 0, n)
}

// texts converts strings to a list.
func (c *call) texts(list []string) value {
	items := c.make(len(list))
	for _, s := range list {
		items = append(items, text(s))
	}
	return listOf(items)
}

// show returns a value as a string, as print formats it.
func (c *call) show(v value) string {
	if v.kind == kindString {
		return v.str
	}
	c.s.measure(c.at, v, MaxOutput)
	return string(v.appendTo(nil))
}
