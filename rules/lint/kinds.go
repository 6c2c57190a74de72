package lint

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/warning"
)

// expression warns about an operator that does not fit the values that the element can have.
func (l *linter) expression(at place, f *dictionary.Feature, key string, all nfdv1alpha1.MatchExpressionSet) {
	element := f.Element(key)
	if element == nil {
		return
	}
	e, op := all[key], rules.MatchOperatorOf(all[key].Op)
	truth := e.Op == nfdv1alpha1.MatchIsTrue || e.Op == nfdv1alpha1.MatchIsFalse
	switch kind := element.Kind; {
	case f.Name == "kernel.loadedmodule" && (strings.Contains(key, "-") || strings.HasSuffix(key, ".ko")):
		l.module(at, key)
	case kind == dictionary.Flag && op.Valued:
		to := nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists}
		if negative(e) {
			to.Op = nfdv1alpha1.MatchDoesNotExist
		}
		l.rewrite(at, warning.Suspicious, probablyMeant, to, "%s holds names without values, and %s never matches", f.Name, e.Op)
	case kind == dictionary.Option:
		l.option(at, key, e)
	case kind == dictionary.Bit && truth:
		value := "1"
		if e.Op == nfdv1alpha1.MatchIsFalse {
			value = "0"
		}
		l.rewrite(at, warning.Suspicious, probablyMeant, in(value), "%s is 0 or 1, never true or false", key)
	case truth && kind != dictionary.Bool && kind != dictionary.Text && !element.More:
		l.warn(at.path(), warning.Suspicious, "%s is never true or false: it is %s", key, looks(element))
	case op.Ordered:
		l.order(at, f, element, key, all)
	case kind == dictionary.Bool && element.Always && e.Op == nfdv1alpha1.MatchExists:
		l.rewrite(at, warning.Suspicious, probablyMeant, nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchIsTrue},
			"%s is false where it is not true, and exists on either", key)
	case e.Op == nfdv1alpha1.MatchIn || e.Op == nfdv1alpha1.MatchNotIn:
		if width := element.Kind.Width(); width > 0 {
			l.id(at, f.Name, key, width, all)
		} else {
			l.values(at, f, element, key, e)
		}
	}
}

func in(values ...string) nfdv1alpha1.MatchExpression {
	return nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchIn, Value: values}
}

// negative reports whether the author of an expression on something without such values means that it is not there.
func negative(e *nfdv1alpha1.MatchExpression) bool {
	no := func(v string) bool {
		return slices.Contains([]string{"false", "no", "n", "0", "off"}, strings.ToLower(v))
	}
	yes := func(v string) bool {
		return slices.Contains([]string{"true", "yes", "y", "1", "on"}, strings.ToLower(v))
	}
	switch e.Op {
	case nfdv1alpha1.MatchIsFalse:
		return true
	case nfdv1alpha1.MatchIn:
		return !slices.ContainsFunc(e.Value, func(v string) bool { return !no(v) })
	case nfdv1alpha1.MatchNotIn:
		return !slices.ContainsFunc(e.Value, func(v string) bool { return !yes(v) })
	}
	return false
}

// module warns about the name of a module that the kernel does not list.
func (l *linter) module(at place, key string) {
	name := strings.ReplaceAll(strings.TrimSuffix(key, ".ko"), "-", "_")
	reason := "the kernel lists modules with underscores"
	if strings.HasSuffix(key, ".ko") {
		reason = "modules are listed without .ko"
	}
	l.advise(at.path(), warning.Suspicious, at.fix(probablyMeant, warning.Edit{Path: at.steps(), Name: name}), "%s: %s", reason, name)
}

// option warns about expressions on options of the kernel.
func (l *linter) option(at place, key string, e *nfdv1alpha1.MatchExpression) {
	if name, ok := strings.CutPrefix(key, "CONFIG_"); ok {
		l.advise(at.path(), warning.Suspicious, at.fix(probablyMeant, warning.Edit{Path: at.steps(), Name: name}),
			"options are written without CONFIG_: %s", name)
		return
	}
	never := slices.ContainsFunc(e.Value, func(v string) bool { return slices.Contains([]string{"true", "false", "n", "no", "yes"}, v) })
	truth := e.Op == nfdv1alpha1.MatchIsTrue || e.Op == nfdv1alpha1.MatchIsFalse
	switch listed := e.Op == nfdv1alpha1.MatchIn || e.Op == nfdv1alpha1.MatchNotIn; {
	case !truth && !(listed && never):
	case negative(e):
		l.rewrite(at, warning.Suspicious, probablyMeant, nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchDoesNotExist},
			"options are y, m or a value, never false, and one that is not set is absent")
	case truth || e.Op == nfdv1alpha1.MatchIn && len(e.Value) == 1:
		l.rewrite(at, warning.Suspicious, probablyMeant, in("y"), "options are y, m or a value, never true")
	default:
		l.warn(at.path(), warning.Suspicious, "options are y, m or a value, never true or false, and one that is not set is absent")
	}
}

// order warns about comparisons that fail or compare something else on some machines.
func (l *linter) order(at place, f *dictionary.Feature, element *dictionary.Element, key string, all nfdv1alpha1.MatchExpressionSet) {
	e := all[key]
	switch kind := element.Kind; {
	case kind == dictionary.Version && e.Type == nfdv1alpha1.TypeInteger && integers(e.Value) && !integral(f, key, all):
		to := *e
		to.Type = nfdv1alpha1.TypeVersion
		l.rewrite(at, warning.Defect, sameMeaning, to, "%s compares integers, and %s is a version such as %s", e.Op, key, dotted(element))
	case kind == dictionary.Bytes && e.Type == nfdv1alpha1.TypeVersion && !integers(e.Value) && slices.ContainsFunc(e.Value, notQuantity):
		l.warn(at.path(), warning.Defect, "%s is %s, and type: version reads %s as a version", key, looks(element), "["+clip.QuoteAll(e.Value)+"]")
	case kind == dictionary.Bytes && e.Type == nfdv1alpha1.TypeVersion && !integers(e.Value):
		to := *e
		to.Type = nfdv1alpha1.TypeInteger
		l.rewrite(at, warning.Defect, probablyMeant, to, "%s is a number of bytes, and type: version reads %s as a version", key, "["+clip.QuoteAll(e.Value)+"]")
	case kind == dictionary.Bytes && e.Type == nfdv1alpha1.TypeInteger:
		l.quantities(at, f, key, e)
	case kind == dictionary.Bool, kind == dictionary.Hex2, kind == dictionary.Hex4, kind == dictionary.Enum && !element.More && !numbers(element):
		l.warn(at.path(), warning.Defect, "%s compares integers, and %s is %s", e.Op, key, looks(element))
	}
}

// quantities warns about quantities, which NFD does not evaluate, and about those with another base than the sizes of caches.
func (l *linter) quantities(at place, f *dictionary.Feature, key string, e *nfdv1alpha1.MatchExpression) {
	plain, binary := *e, *e
	plain.Value, binary.Value = slices.Clone(e.Value), slices.Clone(e.Value)
	for i, v := range e.Value {
		n, ok := rules.Quantity(v)
		if !ok {
			return // an error, which Compile reports
		}
		plain.Value[i] = strconv.FormatInt(n, 10)
		if f.Name == "cpu.cache" && strings.ContainsAny(v[len(v)-1:], "kMGT") {
			binary.Value[i] = strings.ToUpper(v) + "i"
		}
	}
	switch {
	case !slices.Equal(binary.Value, e.Value):
		l.rewrite(at, warning.Suspicious, probablyMeant, binary, "%s is a power of two or a few of them, and M is 1000000 bytes, Mi 1048576", key)
	case !slices.Equal(plain.Value, e.Value):
		l.rewrite(at, warning.Unlikely, sameMeaning, plain, "NFD does not evaluate quantities; for nodes that NFD labels too")
	}
}

func notQuantity(s string) bool {
	_, ok := rules.Quantity(s)
	return !ok
}

// integral reports whether the version is an integer on the nodes that the other expressions require: some distributions have such.
func integral(f *dictionary.Feature, key string, all nfdv1alpha1.MatchExpressionSet) bool {
	if f.Name != "system.osrelease" || key != "VERSION_ID" {
		return false
	}
	id := all["ID"]
	return id != nil && id.Op == nfdv1alpha1.MatchIn && !slices.ContainsFunc(id.Value, func(v string) bool {
		return !slices.Contains([]string{"amzn", "centos", "cos", "debian", "fedora", "raspbian"}, v)
	})
}

// numbers reports whether all values of an element are integers.
func numbers(e *dictionary.Element) bool { return integers(e.Values) }

// integers reports whether all values are integers; other ones are errors, which say the same.
func integers(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { _, err := strconv.ParseInt(v, 10, 64); return err != nil })
}

// dotted returns a typical value that is not an integer.
func dotted(e *dictionary.Element) string {
	for _, v := range e.Typical() {
		if !integers([]string{v}) {
			return v
		}
	}
	return e.Typical()[0]
}

// looks describes the values of an element, with one that exists.
func looks(e *dictionary.Element) string {
	switch e.Kind {
	case dictionary.Integer, dictionary.Number:
		if e.Unit != "" {
			return "an integer in " + e.Unit + ", such as " + e.Typical()[0]
		}
		return "an integer, such as " + e.Typical()[0]
	case dictionary.Bytes:
		return "a number of bytes, such as " + e.Typical()[0]
	case dictionary.Version:
		return "a version, such as " + dotted(e)
	case dictionary.Hex2, dictionary.Hex4:
		return "hexadecimal, such as " + e.Typical()[0]
	}
	return oneOf(e.Typical())
}

// values warns about values that the element never has.
func (l *linter) values(at place, f *dictionary.Feature, element *dictionary.Element, key string, e *nfdv1alpha1.MatchExpression) {
	if len(e.Value) == 1 && e.Op == nfdv1alpha1.MatchIn && l.operator(at, element, key, e.Value[0]) {
		return
	}
	for i, v := range e.Value {
		right := meant(element, v)
		switch {
		case element.Has(v) && (right == "" || right == v) || v == dictionary.Unknown && f.Is(dictionary.Instances):
		case right != "" && slices.Contains(e.Value, right):
			l.warn(at.value(i), warning.Suspicious, "%s is never %q", key, v)
		case right != "":
			l.replace(at, i, right, "%s is never %q: write %s", key, v, right)
		case key == "chassis_type":
			l.warn(at.value(i), warning.Suspicious, "chassis_type is a number of the SMBIOS specification, such as 3 for a desktop or 23 for a rack mount chassis, and never %q", v)
		default:
			l.warn(at.value(i), warning.Suspicious, "%s is never %q: it is %s", key, v, looks(element))
		}
	}
}

// comparison matches a value with an operator of another notation, such as >=5.
var comparison = regexp.MustCompile(`^(>=|<=|>|<)\s*(v?[0-9][0-9.]*)$`)

// operator warns about a value that contains an operator or a pattern, and reports whether it does.
func (l *linter) operator(at place, element *dictionary.Element, key, v string) bool {
	if m := comparison.FindStringSubmatch(v); m != nil && element.Kind != dictionary.Bit { // 0 and 1 need no order, and none is above 1
		to := nfdv1alpha1.MatchExpression{Op: map[string]nfdv1alpha1.MatchOp{
			">": nfdv1alpha1.MatchGt, ">=": nfdv1alpha1.MatchGe, "<": nfdv1alpha1.MatchLt, "<=": nfdv1alpha1.MatchLe}[m[1]], Value: []string{m[2]}}
		if element.Kind == dictionary.Version {
			to.Type = nfdv1alpha1.TypeVersion
		}
		if element.Kind == dictionary.Version || element.Kind.Numeric() && element.Kind != dictionary.Bit && integers(to.Value) {
			l.rewrite(at, warning.Suspicious, probablyMeant, to, "In compares strings, and %s is never %q", key, v)
			return true
		}
	}
	if (element.Kind == dictionary.Text || element.More || element.Kind == dictionary.Version) && strings.Contains(v, "*") && !strings.ContainsAny(v, "^$[](){}|\\") {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*") + "$"
		pattern = strings.TrimSuffix(pattern, ".*$")
		l.rewrite(at, warning.Suspicious, probablyMeant, nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchInRegexp, Value: []string{pattern}},
			"In compares whole strings, and %s is never %q", key, v)
		return true
	}
	return false
}

// meant returns the value of an element that the author of another one probably means, or "".
func meant(element *dictionary.Element, v string) string {
	if right := dictionary.Instead(element.Wrong, v); right != "" {
		return right
	}
	short := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(strings.ToLower(v)), "v"), ".0")
	switch element.Kind {
	case dictionary.Bool, dictionary.Bit:
		values := element.Typical()
		if element.Kind == dictionary.Bool {
			values = []string{"false", "true"}
		}
		switch strings.ToLower(v) {
		case "true", "yes", "y", "on", "enabled", "1":
			return values[1]
		case "false", "no", "n", "off", "disabled", "0":
			return values[0]
		}
	case dictionary.Enum:
		if right := like(v, element.Values); right != "" {
			return right
		}
		if slices.Contains(element.Values, short) {
			return short
		}
	case dictionary.Integer, dictionary.Number:
		if n, err := strconv.ParseUint(strings.TrimPrefix(short, "0x"), 16, 32); err == nil && strings.HasPrefix(short, "0x") {
			return strconv.FormatUint(n, 10)
		}
		if n, err := strconv.ParseInt(short, 10, 64); err == nil && short != v {
			return strconv.FormatInt(n, 10)
		}
	}
	return ""
}

// like returns the value that differs only in case and separators, and "" if there is none.
func like(v string, known []string) string {
	for _, k := range known {
		if strings.EqualFold(dictionary.Separators.Replace(k), dictionary.Separators.Replace(v)) {
			return k
		}
	}
	return ""
}

// oneOf lists the values of an element.
func oneOf(known []string) string {
	if len(known) > 2 {
		return "one of " + strings.Join(known, ", ")
	}
	return strings.Join(known, " or ")
}
