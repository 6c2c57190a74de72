package tmpl

import (
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/lang/match"
)

// data is what a template runs on: .<domain>.<feature> is the list of the elements that the matcher matched. It has NFD's
// shape, with the keys as the author of the rule typed them, and also in lower case, which is how feature names are
// looked up and how NFD's own documentation writes them in templates.
type data struct {
	terms []match.FeatureElements
	asIs  bool           // texts may hold line breaks, as they may for NFD
	found []foundFeature // of lookups in this expansion
	all   dict           // the whole as maps, made when a template asks for it
}

type foundFeature struct {
	domain, name string
	list         value
}

// split returns the domain and the name that a feature has in template data.
func split(feature string) (domain, name string) {
	if i := strings.IndexByte(feature, '.'); i >= 0 {
		return feature[:i], feature[i+1:]
	}
	return strings.ToLower(feature), ""
}

// feature returns the elements of one feature. It is the fast way, which makes no maps.
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

// collect joins the elements of all terms on a feature, in their order and with duplicates, as NFD does.
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

// tree is the whole data as maps.
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
