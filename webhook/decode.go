package webhook

import (
	"encoding/json"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// decode decodes an object as utiljson.Unmarshal does, and the usual fields of rules without reflection: for an object with a hundred
// rules that is a third of a review.
func decode(raw []byte, object any) error {
	if rule, ok := object.(*nfdv1alpha1.NodeFeatureRule); ok {
		if decodeRule(raw, rule) {
			return nil
		}
		*rule = nfdv1alpha1.NodeFeatureRule{}
	}
	return utiljson.Unmarshal(raw, object)
}

// decodeRule decodes an object as an API server writes it: without null, and with each name once. It returns false for other objects,
// which are then incomplete.
func decodeRule(raw []byte, into *nfdv1alpha1.NodeFeatureRule) bool {
	spec, rest, ok := openSpec(raw)
	if !ok || utiljson.Unmarshal(rest, into) != nil {
		return false
	}
	d := &decoder{raw: spec}
	d.object(func(key string) {
		if key != "rules" {
			d.other(key, &into.Spec)
			return
		}
		into.Spec.Rules = []nfdv1alpha1.Rule{}
		d.list(func() {
			into.Spec.Rules = append(into.Spec.Rules, nfdv1alpha1.Rule{})
			d.rule(&into.Spec.Rules[len(into.Spec.Rules)-1])
		})
	})
	return !d.failed
}

// decoder reads JSON from the front. It fails on any value of another type than expected, null included.
type decoder struct {
	raw    []byte
	failed bool
}

func (d *decoder) rule(r *nfdv1alpha1.Rule) {
	d.object(func(key string) {
		switch key {
		case "name":
			r.Name = d.text()
		case "labels":
			r.Labels = d.texts()
		case "annotations":
			r.Annotations = d.texts()
		case "vars":
			r.Vars = d.texts()
		case "extendedResources":
			r.ExtendedResources = d.texts()
		case "labelsTemplate":
			r.LabelsTemplate = d.text()
		case "varsTemplate":
			r.VarsTemplate = d.text()
		case "matchFeatures":
			r.MatchFeatures = d.matcher()
		default:
			d.other(key, r)
		}
	})
}

func (d *decoder) matcher() nfdv1alpha1.FeatureMatcher {
	out := nfdv1alpha1.FeatureMatcher{}
	d.list(func() {
		term := nfdv1alpha1.FeatureMatcherTerm{}
		d.object(func(key string) {
			switch key {
			case "feature":
				term.Feature = d.text()
			case "matchExpressions":
				set := nfdv1alpha1.MatchExpressionSet{}
				d.object(func(name string) { set[name] = d.expression() })
				term.MatchExpressions = &set
			case "matchName":
				term.MatchName = d.expression()
			default:
				d.other(key, &term)
			}
		})
		out = append(out, term)
	})
	return out
}

func (d *decoder) expression() *nfdv1alpha1.MatchExpression {
	e := &nfdv1alpha1.MatchExpression{}
	d.object(func(key string) {
		switch key {
		case "op":
			e.Op = nfdv1alpha1.MatchOp(d.text())
		case "value":
			e.Value = nfdv1alpha1.MatchValue{}
			d.list(func() { e.Value = append(e.Value, d.text()) })
		case "type":
			e.Type = nfdv1alpha1.ValueType(d.text())
		default:
			d.other(key, e)
		}
	})
	return e
}

func (d *decoder) texts() map[string]string {
	out := map[string]string{}
	d.object(func(key string) { out[key] = d.text() })
	return out
}

// other decodes the value of any other field of a struct.
func (d *decoder) other(key string, into any) {
	name, err := json.Marshal(key)
	end := skip(d.raw, 0)
	d.failed = d.failed || err != nil || utiljson.Unmarshal(slices.Concat([]byte("{"), name, []byte(":"), d.raw[:end], []byte("}")), into) != nil
	d.raw = d.raw[end:]
}

// object calls member with the name of each member; member reads the value.
func (d *decoder) object(member func(key string)) {
	d.expect('{')
	if d.accept('}') {
		return
	}
	for !d.failed {
		key := d.text()
		d.expect(':')
		if d.raw = d.raw[blank(d.raw, 0):]; d.failed {
			return
		}
		if member(key); !d.accept(',') {
			d.expect('}')
			return
		}
	}
}

// list calls item for each element; item reads it.
func (d *decoder) list(item func()) {
	d.expect('[')
	if d.accept(']') {
		return
	}
	for !d.failed {
		if item(); !d.accept(',') {
			d.expect(']')
			return
		}
	}
}

// text reads a string.
func (d *decoder) text() string {
	d.raw = d.raw[blank(d.raw, 0):]
	if len(d.raw) == 0 || d.raw[0] != '"' {
		d.failed = true
		return ""
	}
	for i := 1; i < len(d.raw); i++ {
		switch c := d.raw[i]; {
		case c == '"':
			s := string(d.raw[1:i])
			d.raw = d.raw[i+1:]
			return s
		case c == '\\' || c < ' ' || c > '~':
			return d.unusual()
		}
	}
	d.failed = true
	return ""
}

// unusual reads a string with escapes or characters that are not ASCII.
func (d *decoder) unusual() (s string) {
	end := quoted(d.raw, 0)
	d.failed = d.failed || json.Unmarshal(d.raw[:end], &s) != nil
	d.raw = d.raw[end:]
	return s
}

// accept reads a delimiter if it is next.
func (d *decoder) accept(delimiter byte) bool {
	i := blank(d.raw, 0)
	if i < len(d.raw) && d.raw[i] == delimiter && !d.failed {
		d.raw = d.raw[i+1:]
		return true
	}
	return false
}

// expect reads a delimiter that must be next.
func (d *decoder) expect(delimiter byte) { d.failed = !d.accept(delimiter) }
