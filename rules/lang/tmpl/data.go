package tmpl

import (
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/lang/match"
)

// data is the input of a template: .<domain>.<feature> is the list of the elements that the matcher matched. Feature names can be
// written as in the rule, as NFD allows, or in lower case, as in NFD's documentation.
type data struct {
	terms []match.FeatureElements
	asIs  bool           // strings may hold line breaks, as in NFD
	found []foundFeature // features found in this expansion
	all   dict           // all data as maps, built on demand
}

type foundFeature struct {
	domain, name string
	list         value
}

// split returns the domain and the name of a feature in template data.
func split(feature string) (domain, name string) {
	if i := strings.IndexByte(feature, '.'); i >= 0 {
		return feature[:i], feature[i+1:]
	}
	return strings.ToLower(feature), ""
}

// feature returns the elements of one feature without building maps.
func (d *data) feature(domain, name string) (value, bool) {
	for i := range d.found {
		if d.found[i].domain == domain && d.found[i].name == name {
			return d.found[i].list, true
		}
	}
	elements, ok := d.collect(func(feature string) bool {
		a, b := split(feature)
		return a == domain && b == name
	})
	if !ok {
		elements, ok = d.collect(func(feature string) bool {
			a, b := split(feature)
			return strings.ToLower(a) == domain && strings.ToLower(b) == name
		})
	}
	if !ok {
		return value{}, false
	}
	v := value{kind: kindList, ref: &list{elements: elements, asIs: d.asIs}}
	d.found = append(d.found, foundFeature{domain, name, v})
	return v, true
}

// collect joins the elements of all terms on a feature, in order and with duplicates, as NFD does.
func (d *data) collect(is func(feature string) bool) (out []match.Element, found bool) {
	for i := range d.terms {
		if !is(d.terms[i].Feature) {
			continue
		}
		if !found {
			out, found = slices.Clip(d.terms[i].Elements), true
			continue
		}
		out = append(out, d.terms[i].Elements...)
	}
	return out, found
}

// tree returns all data as maps.
func (d *data) tree() dict {
	if d.all != nil {
		return d.all
	}
	d.all = dict{}
	add := func(domain, name string) {
		if d.all[domain].ref == nil {
			d.all[domain] = domainOf(dict{})
		}
		d.all[domain].ref.(dict)[name], _ = d.feature(domain, name)
	}
	for i := range d.terms {
		domain, name := split(d.terms[i].Feature)
		add(domain, name)
		add(strings.ToLower(domain), strings.ToLower(name))
	}
	return d.all
}

// names returns the features as templates write them, in order and without duplicates.
func (d *data) names() (out []string) {
	for i := range d.terms {
		if name := "." + d.terms[i].Feature; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
