package webhook

import (
	"encoding/json"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// decode decodes an object as utiljson.Unmarshal does, and the usual fields of rules without reflection: for an object with a hundred
// rules that is a third of a review. It returns the spec of rules if it decoded them itself.
func decode(raw []byte, object any) (spec string, err error) {
	if rule, ok := object.(*nfdv1alpha1.NodeFeatureRule); ok {
		if spec, ok = decodeRule(raw, rule); ok {
			return spec, nil
		}
		*rule = nfdv1alpha1.NodeFeatureRule{}
	}
	return "", utiljson.Unmarshal(raw, object)
}

// typicalRule is the size of a rule in JSON in bytes, to allocate the list of rules once.
const typicalRule = 256

// slab is the number of expressions and values that are allocated together.
const slab = 64

// decodeRule decodes an object as an API server writes it, with each name once, and returns its spec. It returns false for other
// objects, which are then incomplete. The strings of the rules share one copy of the object: a hundred rules have thousands of them.
func decodeRule(raw []byte, into *nfdv1alpha1.NodeFeatureRule) (spec string, ok bool) {
	text, rest, specs := string(raw), make([]byte, 0, typicalRule), 0
	d := &decoder{values: make([]string, 0, slab)}
	last := 0
	walk(raw, 0, func(key string, i int) int {
		if key != "spec" {
			return skip(raw, i)
		}
		specs++
		d.raw = text[i:]
		d.spec(&into.Spec)
		rest = append(append(rest, raw[last:i]...), "null"...)
		last = len(raw) - len(d.raw)
		spec = text[i:last]
		return last
	})
	if d.failed || specs != 1 || utiljson.Unmarshal(append(rest, raw[last:]...), into) != nil {
		return "", false
	}
	return spec, true
}

// decoder reads JSON from the front. It fails on any value of another type than expected; null is expected in fields only.
type decoder struct {
	raw    string
	failed bool

	expressions []nfdv1alpha1.MatchExpression
	values      []string
}

func (d *decoder) spec(s *nfdv1alpha1.NodeFeatureRuleSpec) {
	d.fields(func(key string) {
		if key != "rules" {
			d.other(key, s)
			return
		}
		s.Rules = make([]nfdv1alpha1.Rule, 0, len(d.raw)/typicalRule)
		d.list(func() {
			s.Rules = append(s.Rules, nfdv1alpha1.Rule{})
			d.rule(&s.Rules[len(s.Rules)-1])
		})
	})
}

func (d *decoder) rule(r *nfdv1alpha1.Rule) {
	d.fields(func(key string) {
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
	out := make(nfdv1alpha1.FeatureMatcher, 0, 2)
	d.list(func() {
		term := nfdv1alpha1.FeatureMatcherTerm{}
		d.fields(func(key string) {
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
	if len(d.expressions) == cap(d.expressions) {
		d.expressions = make([]nfdv1alpha1.MatchExpression, 0, slab)
	}
	d.expressions = append(d.expressions, nfdv1alpha1.MatchExpression{})
	e := &d.expressions[len(d.expressions)-1]
	d.fields(func(key string) {
		switch key {
		case "op":
			e.Op = nfdv1alpha1.MatchOp(d.text())
		case "value":
			first := len(d.values)
			d.list(func() { d.values = append(d.values, d.text()) })
			e.Value = d.values[first:len(d.values):len(d.values)]
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
	d.failed = d.failed || err != nil || utiljson.Unmarshal([]byte("{"+string(name)+":"+d.raw[:end]+"}"), into) != nil
	d.raw = d.raw[end:]
}

// fields calls member with the name of each field of a struct that is not null; member reads the value.
func (d *decoder) fields(member func(key string)) {
	d.object(func(key string) {
		if rest, null := strings.CutPrefix(d.raw, "null"); null {
			d.raw = rest
			return
		}
		member(key)
	})
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
			s := d.raw[1:i]
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
	s, ok := unescape(d.raw[1:max(1, end-1)])
	if !ok {
		d.failed = d.failed || json.Unmarshal([]byte(d.raw[:end]), &s) != nil
	}
	d.raw = d.raw[end:]
	return s
}

// escaped are the usual characters after a backslash.
var escaped = [256]byte{'n': '\n', 't': '\t', '"': '"', '\\': '\\', '/': '/'}

// unescape returns a string without its escapes if it has only usual ones, such as the line breaks of a template.
func unescape(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			c = escaped[s[i]]
		} else if c < ' ' || c > '~' || c == '\\' {
			return "", false
		}
		if c == 0 {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
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
