//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
)

// form is who publishes the features of a node.
type form int

// The forms of nodes.
const (
	whole   form = iota // its worker publishes one object with everything
	sharing             // its worker publishes large features as NodeFeatureSets
	foreign             // only third parties publish
	labels              // a NodeFeature with labels and without features
	none                // no NodeFeature counts
)

var formNames = []string{"worker, whole object", "worker, feature sets", "third party", "requested labels", "no NodeFeature"}

// forms has each form as often as it is drawn.
var forms = []form{whole, whole, whole, whole, sharing, sharing, sharing, foreign, labels, none}

// node is a Node and the objects that describe it.
type node struct {
	number    int
	name, uid string
	form      form
	content   publish.Content // of its worker
	employed  bool            // its worker runs
	// deleted is the last object of its worker if it was deleted, and at when: its features count until the grace period is over.
	deleted *nfdv1alpha1.NodeFeature
	at      time.Time
	// vendors are the names of the objects of third parties, by namespace/name; the value counts the changes.
	vendors map[string]int
}

// drawer draws contents. Its results depend on the seed and the order of calls alone.
type drawer struct {
	*rand.Rand
	secrets []string // all masked values so far
}

func (d *drawer) one(from ...string) string { return from[d.IntN(len(from))] }

// text returns random letters and digits.
func (d *drawer) text(length int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for range length {
		b.WriteByte(alphabet[d.IntN(len(alphabet))])
	}
	return b.String()
}

// secretLength is long enough that a masked value occurs nowhere by chance.
const secretLength = 16

// secret returns a value that must not leave the NodeFeatures.
func (d *drawer) secret() string {
	s := d.text(secretLength)
	d.secrets = append(d.secrets, s)
	return s
}

// name returns the name of a node. Names differ in their length, and some are the beginning of others.
func (d *drawer) name(number int) string {
	switch d.IntN(4) {
	case 0:
		return fmt.Sprintf("n%d", number)
	case 1:
		return fmt.Sprintf("node-%d", number)
	case 2:
		return fmt.Sprintf("node-%d.%s.example.internal", number, d.text(1+d.IntN(20)))
	}
	return fmt.Sprintf("%s-worker-%d", d.text(1+d.IntN(40)), number)
}

// features returns what a worker finds on a host.
func (d *drawer) features(number int) nfdv1alpha1.Features {
	f := nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{"twin.flag": {Elements: d.flags()}},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			"twin.attr": {Elements: map[string]string{
				"serial": fmt.Sprintf("serial-%d-%s", number, d.text(1+d.IntN(12))), "model": "model-" + d.text(2), "level": fmt.Sprint(d.IntN(10)),
			}},
			"twin.big": {Elements: d.big(d.IntN(6))},
		},
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
			"twin.card": {Elements: d.cards("twin", number)}, "twin.port": {Elements: d.ports(d.IntN(6))},
		},
	}
	if d.IntN(2) == 0 {
		f.Attributes["twin.attr"].Elements["db-password"] = d.secret()
	}
	if d.IntN(3) == 0 { // the same name among flags
		f.Flags["twin.attr"] = nfdv1alpha1.FlagFeatureSet{Elements: d.flags()}
	}
	return f
}

func (d *drawer) flags() map[string]nfdv1alpha1.Nil {
	out := map[string]nfdv1alpha1.Nil{}
	for i := range 8 {
		if d.IntN(2) == 0 {
			out[fmt.Sprintf("F%d", i)] = nfdv1alpha1.Nil{}
		}
	}
	return out
}

// big returns attributes that are large enough for a feature set, of one of a few variants.
func (d *drawer) big(variant int) map[string]string {
	out := map[string]string{"variant": fmt.Sprintf("big-%d", variant)}
	for i := range 60 {
		out[fmt.Sprintf("CONFIG_OPTION_%02d", i)] = fmt.Sprintf("value-%d", (i*7+variant*3)%11)
	}
	return out
}

// ports returns instances that are large enough for a feature set, of one of a few variants.
func (d *drawer) ports(variant int) []nfdv1alpha1.InstanceFeature {
	var out []nfdv1alpha1.InstanceFeature
	for i := range 24 {
		out = append(out, nfdv1alpha1.InstanceFeature{Attributes: map[string]string{
			"name": fmt.Sprintf("port-%d", i), "driver": fmt.Sprintf("driver-%d", variant), "speed": fmt.Sprint(1000 * (1 + (i+variant)%3)),
		}})
	}
	return out
}

// cards returns instances of which one attribute has the same value on all, and differs between nodes.
func (d *drawer) cards(maker string, number int) []nfdv1alpha1.InstanceFeature {
	vendor := fmt.Sprintf("%s-%d-%s", maker, number, d.text(1+d.IntN(8)))
	var out []nfdv1alpha1.InstanceFeature
	for i := range 1 + d.IntN(4) {
		attributes := map[string]string{"vendor": vendor, "slot": fmt.Sprint(i), "speed": d.one("10", "25", "100")}
		if d.IntN(4) == 0 {
			attributes["api-token"] = d.secret()
		}
		out = append(out, nfdv1alpha1.InstanceFeature{Attributes: attributes})
	}
	return out
}

// requested returns labels that a NodeFeature requests.
func (d *drawer) requested(family string, number int) map[string]string {
	out := map[string]string{"twin-" + family: fmt.Sprintf("%s-%d", d.text(3), number)}
	if d.IntN(2) == 0 {
		out["twin.example.com/requested"] = family + "-" + d.text(4)
	}
	if d.IntN(4) == 0 {
		out["twin.example.com/by-reference"] = "@twin.attr.serial"
	}
	if d.IntN(4) == 0 {
		out["twin.example.com/requested-secret"] = "@twin.attr.db-password"
	}
	return out
}

// content returns what the worker of a node publishes.
func (d *drawer) content(number int) publish.Content {
	c := publish.Content{Features: d.features(number)}
	if d.IntN(3) == 0 {
		c.Labels = d.requested("worker", number)
	}
	return c
}

// change returns content of which some differs.
func (d *drawer) change(number int, c publish.Content) publish.Content {
	next := d.content(number)
	switch d.IntN(5) {
	case 0:
		next.Labels = c.Labels
		return next
	case 1:
		c.Labels = next.Labels
	case 2:
		c.Features.Attributes = next.Features.Attributes
	case 3:
		c.Features.Instances = next.Features.Instances
	case 4:
		c.Features.Flags = next.Features.Flags
	}
	return c
}

// vendor returns the spec of an object of a third party. It extends and overrides features of the worker.
func (d *drawer) vendor(n *node) nfdv1alpha1.NodeFeatureSpec {
	s := nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
		Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
		Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
	}}
	if n.form == labels {
		s.Labels = d.requested("only", n.number)
		return s
	}
	s.Features.Attributes["vendor.attr"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{
		"x": fmt.Sprintf("x-%d-%s", n.number, d.text(1+d.IntN(9))), "level": fmt.Sprint(d.IntN(10)), "vendor-password": d.secret(),
	}}
	s.Features.Instances["vendor.card"] = nfdv1alpha1.InstanceFeatureSet{Elements: d.cards("vendor", n.number)}
	if d.IntN(2) == 0 {
		s.Features.Flags["vendor.flag"] = nfdv1alpha1.FlagFeatureSet{Elements: d.flags()}
	}
	if d.IntN(2) == 0 { // the order of the merge decides
		s.Features.Attributes["twin.attr"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"level": fmt.Sprint(d.IntN(10)), "by": d.text(4)}}
		s.Features.Instances["twin.card"] = nfdv1alpha1.InstanceFeatureSet{Elements: d.cards("both", n.number)}
	}
	if d.IntN(3) == 0 {
		s.Labels = d.requested("vendor", n.number)
	}
	if d.IntN(3) == 0 {
		s.EncodedInstances = fmt.Sprintf(`{"vendor.port": [{"name": "veth-%s", "peer": "%d"}]}`, d.text(5), n.number)
	}
	return s
}
