package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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
	item := l.loop(path.Child("loop"), r.Loop, "")
	l.conditions(path, r.Conditions, item)
	for i := range r.Actions {
		a, p := &r.Actions[i], path.Child("actions").Index(i)
		l.arguments(p.Child("args"), a.Args, l.loop(p.Child("loop"), a.Loop, item))
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
func (l *linter) conditions(parent *field.Path, list []nfdv1alpha1.Condition, item string) {
	for i := range list {
		c, p := &list[i], parent.Child("conditions").Index(i)
		l.arguments(p.Child("args"), c.Args, l.loop(p.Child("loop"), c.Loop, item))
	}
}

// loop warns about the names in a loop, and returns the feature whose instances are its items, or "" if it has other items. Without a
// loop, it returns the feature of the loop around it.
func (l *linter) loop(path *field.Path, loop *nfdv1alpha1.JSON, around string) string {
	if loop == nil || loop.IsZero() {
		return around
	}
	l.arguments(path, *loop, around)
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
		l.warn(path, warning.Defect, "no source publishes %s; did you mean {@%s}?", m[1], near)
	}
	if !f.Is(dictionary.Instances) {
		return ""
	}
	return name
}

// arguments warns about the names in the strings of a value.
func (l *linter) arguments(path *field.Path, value nfdv1alpha1.JSON, item string) {
	if !bytes.Contains(value.Raw, []byte("{")) {
		return // to decode a value takes much longer
	}
	v, err := value.Decode()
	if err != nil {
		return // Compile reports it
	}
	l.value(path, v, item)
}

func (l *linter) value(path *field.Path, v any, item string) {
	switch v := v.(type) {
	case string:
		l.references(path, v)
		l.items(path, v, item)
	case []any:
		for i := range v {
			l.value(path.Index(i), v[i], item)
		}
	case map[string]any:
		for _, key := range facts.SortedKeys(v) {
			l.value(path.Child(key), v[key], item)
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

// instances warns about attributes of instances, such as @pci.device[0].count.
func (l *linter) instances(path *field.Path, e string) {
	for _, m := range instance.FindAllStringSubmatch(e, -1) {
		name := strings.ToLower(m[1])
		if f := dictionary.Find(name); f.Is(dictionary.Instances) && m[3] == "" && !l.counted(path, f, m[2]) {
			l.element(func() *field.Path { return path }, f, m[2])
		}
	}
}

// counted warns about a name with which the author probably means the number of instances, and reports whether it is one.
func (l *linter) counted(path *field.Path, f *dictionary.Feature, element string) bool {
	if !slices.Contains(counts, strings.ToLower(element)) || f.Knows(element) {
		return false
	}
	l.warn(path, warning.Defect, "%s is a list of instances and has no %s; write {@%s.len()} for their number", f.Name, element, f.Name)
	return true
}

// instead returns how to write a reference to an attribute of a feature that has instances only.
func instead(f *dictionary.Feature, element string) string {
	near := element
	if !f.Knows(element) {
		if near = dictionary.Nearest(element, f.ElementNames()); near == "" && !f.Any() {
			return fmt.Sprintf("%s is a list of instances and has no %s; they have %s", f.Name, element, strings.Join(f.ElementNames(), ", "))
		}
		if near == "" {
			near = element
		}
	}
	return fmt.Sprintf("%s is a list of instances, and @ refers to attributes; write {@%s[0].%s}, or a labelsTemplate", f.Name, f.Name, near)
}
