package lint

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

var (
	// loopOver matches a loop over the instances of a feature.
	loopOver = regexp.MustCompile(`^\{\s*@([A-Za-z]+\.[A-Za-z_]+)\s*\}$`)
	// instance matches an attribute of one instance, such as @pci.device[0].vendor.
	instance = regexp.MustCompile(`@([A-Za-z]+\.[A-Za-z_]+)\[-?\d+\]\.([A-Za-z0-9_]+)(\(?)`)
	// itemField matches an attribute of the item of a loop. The last group is set for functions, such as item.lower().
	itemField = regexp.MustCompile(`\bitem\.([A-Za-z0-9_]+)(\(?)`)
)

// counts are names with which users mean the number of instances.
var counts = []string{"count", "length", "len", "size", "number", "num", "total"}

// language warns about the names in the conditions, loops and actions of a rule, as in its labels.
func (l *linter) language(path *field.Path, r *nfdv1alpha1.Rule) {
	at := ruleSpot(path)
	item := l.loop(at.child("loop"), r.Loop, "")
	l.conditions(at, r.Conditions, item)
	for i := range r.Actions {
		a, p := &r.Actions[i], at.child("actions").index(i)
		l.arguments(p.child("args"), a.Args, l.loop(p.child("loop"), a.Loop, item))
	}
	if item == "" {
		return
	}
	for _, m := range []struct {
		field  string
		values map[string]string
	}{{"labels", r.Labels}, {"annotations", r.Annotations}, {"extendedResources", r.ExtendedResources}, {"vars", r.Vars}} {
		for _, key := range facts.SortedKeys(m.values) {
			l.items(path.Child(m.field).Key(key), key+" "+m.values[key], item)
		}
	}
	for i, t := range r.Taints {
		l.items(path.Child("taints").Index(i), t.Key+" "+t.Value, item)
	}
}

// conditions warns about the names in conditions. item is the feature whose instances are the items of the loop around them, or "".
func (l *linter) conditions(rule spot, list []nfdv1alpha1.Condition, item string) {
	for i := range list {
		c, p := &list[i], rule.child("conditions").index(i)
		l.arguments(p.child("args"), c.Args, l.loop(p.child("loop"), c.Loop, item))
	}
}

// loop warns about the names in a loop, and returns the feature whose instances are its items, or "" if it has other items. Without a
// loop, it returns the feature of the loop around it.
func (l *linter) loop(at spot, loop *nfdv1alpha1.JSON, around string) string {
	if loop == nil || loop.IsZero() {
		return around
	}
	l.arguments(at, *loop, around)
	var text string
	if json.Unmarshal(loop.Raw, &text) != nil {
		return ""
	}
	m := loopOver.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return ""
	}
	name := strings.ToLower(m[1])
	f := dictionary.Find(name)
	if near := dictionary.Nearest(name, dictionary.Names()); f == nil && near != "" {
		l.warn(at.path, warning.Defect, "no source publishes %s; did you mean {@%s}?", m[1], near)
	}
	if !f.Is(dictionary.Instances) {
		return ""
	}
	return name
}

// arguments warns about the names in the strings of a value.
func (l *linter) arguments(at spot, value nfdv1alpha1.JSON, item string) {
	if !bytes.Contains(value.Raw, []byte("{")) {
		return // to decode a value takes much longer
	}
	v, err := value.Decode()
	if err != nil {
		return // Compile reports it
	}
	l.value(at, v, item)
}

func (l *linter) value(at spot, v any, item string) {
	switch v := v.(type) {
	case string:
		l.references(at, v)
		l.items(at.path, v, item)
	case []any:
		for i := range v {
			l.value(at.index(i), v[i], item)
		}
	case map[string]any:
		for _, key := range facts.SortedKeys(v) {
			l.value(at.child(key), v[key], item)
		}
	}
}

// items warns about attributes that the items of a loop cannot have.
func (l *linter) items(path *field.Path, text, item string) {
	if item == "" || !strings.Contains(text, "item.") {
		return
	}
	for _, e := range expression.FindAllString(text, -1) {
		for _, m := range itemField.FindAllStringSubmatch(e, -1) {
			if m[2] == "" {
				l.element(func() *field.Path { return path }, dictionary.Find(item), m[1])
			}
		}
	}
}

// instances warns about attributes of instances, such as @pci.device[0].count, in an expression of a string.
func (l *linter) instances(at spot, text, e string) {
	for _, m := range instance.FindAllStringSubmatch(e, -1) {
		name := strings.ToLower(m[1])
		if f := dictionary.Find(name); f.Is(dictionary.Instances) && m[3] == "" && !l.counted(at, text, m[0], f, m[2]) {
			l.element(func() *field.Path { return at.path }, f, m[2])
		}
	}
}

// counted warns about a name with which the author probably means the number of instances, and reports whether it is one. ref is the
// reference to it in the text.
func (l *linter) counted(at spot, text, ref string, f *dictionary.Feature, element string) bool {
	if !slices.Contains(counts, strings.ToLower(element)) || f.Knows(element) {
		return false
	}
	to := "@" + f.Name + ".len()"
	l.advise(at.path, warning.Defect, at.refer(text, ref, to),
		"%s is a list of instances and has no %s; write {%s} for their number", f.Name, element, to)
	return true
}

// first warns about a reference to an attribute of a feature that has instances only.
func (l *linter) first(at spot, text, ref string, f *dictionary.Feature, element string) {
	near := element
	if !f.Knows(element) {
		near = dictionary.Nearest(element, f.ElementNames())
		if near == "" && !f.Any() {
			l.warn(at.path, warning.Defect, "%s is a list of instances and has no %s; they have %s", f.Name, element, strings.Join(f.ElementNames(), ", "))
			return
		}
		if near == "" {
			near = element
		}
	}
	to := "@" + f.Name + "[0]." + near
	if !plainName.MatchString(near) {
		to = "@" + f.Name + "[0][" + strconv.Quote(near) + "]"
	}
	l.advise(at.path, warning.Defect, at.refer(text, ref, to),
		"%s is a list of instances, and @ refers to attributes; write {%s} for the first of them", f.Name, to)
}
