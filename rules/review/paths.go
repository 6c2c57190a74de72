package review

import (
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// paths translates paths of an assembled spec to paths of the object. The zero value changes nothing.
type paths struct {
	whole []nfdv1alpha1.Rule
	own   []int    // for each assembled rule, its index in the object, or -1 if it is inherited
	bases []string // for each assembled rule, the template that it is from
}

// newPaths returns the translation from an assembled spec to the spec of the object. Unless it comes from a template, the n-th rule
// with a name is the n-th rule with this name in the object.
func newPaths(object, whole []nfdv1alpha1.Rule, bases []string) *paths {
	type key struct {
		name string
		nth  int
	}
	index, count := map[key]int{}, map[string]int{}
	for i := range object {
		name := object[i].Name
		index[key{name, count[name]}] = i
		count[name]++
	}
	p := &paths{whole: whole, bases: bases, own: make([]int, len(whole))}
	clear(count)
	for n := range whole {
		p.own[n] = -1
		if n < len(bases) && bases[n] != "" {
			continue
		}
		name := whole[n].Name
		if i, ok := index[key{name, count[name]}]; ok {
			p.own[n] = i
		}
		count[name]++
	}
	return p
}

var rulePath = regexp.MustCompile(`^spec\.rules\[(\d+)\](.*)$`)

// split returns the index of the rule in a path, and the rest of the path.
func split(path string) (rule int, rest string, ok bool) {
	m := rulePath.FindStringSubmatch(path)
	if m == nil {
		return 0, "", false
	}
	n, err := strconv.Atoi(m[1])
	return n, m[2], err == nil
}

// translate returns the path in the object, or false if the rule is inherited.
func (p *paths) translate(path string) (string, bool) {
	n, rest, ok := split(path)
	if p == nil || !ok {
		return path, true
	}
	if n >= len(p.own) || p.own[n] < 0 {
		return "", false
	}
	return fmt.Sprintf("spec.rules[%d]%s", p.own[n], rest), true
}

// inherited returns an error in an inherited rule. It names the template and the rule instead of the index, which does not exist in
// the object.
func (p *paths) inherited(e *field.Error) *field.Error {
	n, rest, ok := split(e.Field)
	if !ok || n >= len(p.bases) || p.bases[n] == "" {
		return e
	}
	out := *e
	out.Field = fmt.Sprintf("rule %q of %s%s", p.whole[n].Name, p.bases[n], rest)
	return &out
}

// places maps the indexes of rules in the object to those in the assembled spec.
func (p *paths) places() map[int]int {
	if p == nil {
		return nil
	}
	out := map[int]int{}
	for n, i := range p.own {
		if i >= 0 {
			out[i] = n
		}
	}
	return out
}
