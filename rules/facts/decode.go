package facts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// maxBytes is the maximum size of requests to the API server.
	maxBytes = 3 << 20
	// maxElements is the maximum number of names and attributes in one set: more than fit into the 1.5 MiB that etcd accepts. It
	// limits the memory of malicious objects. It is not one of the object, because what is known of other objects must not decide
	// whether this one is read.
	maxElements = 1 << 18
	// maxFeatures is the maximum number of features of one object. NFD's worker publishes about thirty.
	maxFeatures = 1 << 14
)

// Errors of Decode for objects that are too large.
var (
	errTooLarge    = fmt.Errorf("features take more than %d bytes", maxBytes)
	errElements    = fmt.Errorf("more than %d elements", maxElements)
	errFeatures    = fmt.Errorf("more than %d features", maxFeatures)
	errNotUTF8     = errors.New("features are not valid UTF-8")
	errNotAnObject = errors.New("a flag's value must be an object")
)

// Decode decodes the JSON of spec.features to the result of New. For a set whose JSON text was decoded before, for any node, Decode
// only searches its end and hashes it.
//
// It accepts the input that encoding/json accepts for the API type, with two exceptions: names are case-sensitive, as in the API
// server, and invalid UTF-8 is rejected, not replaced. If a name occurs twice, the last one wins. Errors contain the offset.
//
// The result does not refer to the memory of the text: newNames, pack and columnBuilder.build copy what is kept.
func Decode(text string, in *Interner) (*Facts, error) { return DecodeWith(text, "", in) }

// DecodeWith is Decode for features whose instances are partly in spec.encodedInstances; empty: none are. Those in spec.features win.
func DecodeWith(text, encoded string, in *Interner) (*Facts, error) {
	if len(text)+len(encoded) > maxBytes {
		return nil, errTooLarge
	}
	if !utf8.ValidString(text) || !utf8.ValidString(encoded) {
		return nil, errNotUTF8
	}
	d := decoder{in: in}
	if encoded != "" {
		d.scanner = scanner{text: encoded}
		err := d.encoded()
		if err == nil {
			err = d.end()
		}
		if err != nil {
			return nil, fmt.Errorf("decode encodedInstances: %w", err)
		}
	}
	d.scanner = scanner{text: text}
	if err := d.features(); err != nil {
		return nil, fmt.Errorf("decode features: %w", err)
	}
	return d.build(), nil
}

// Members calls member with the name and the JSON of each member of a JSON object. The JSON of a value is not checked. Names and values
// are parts of text.
func Members(text string, member func(name, value string) error) error {
	s := scanner{text: text}
	err := s.object(func(name string) error {
		value, err := s.skip()
		if err != nil {
			return err
		}
		return member(name, value)
	})
	if err != nil {
		return err
	}
	return s.end()
}

// String decodes a JSON string; null is empty. Without escapes, the result is a part of text.
func String(text string) (string, error) {
	s := scanner{text: text}
	if s.null() {
		return "", s.end()
	}
	value, err := s.string()
	if err != nil {
		return "", err
	}
	return value, s.end()
}

type decoder struct {
	scanner
	in       *Interner
	list     []named
	elements int
}

// named is one set with its name in the document.
type named struct {
	name string
	Feature
}

func (d *decoder) features() error {
	err := d.object(func(member string) error {
		switch member {
		case "flags":
			return d.object(func(name string) error {
				f, err := set(d, &d.in.known().flagTexts, (*decoder).flags)
				return d.add(name, Feature{Flags: f}, err)
			})
		case "attributes":
			return d.object(func(name string) error {
				a, err := set(d, &d.in.known().attributeTexts, (*decoder).attributes)
				return d.add(name, Feature{Attributes: a}, err)
			})
		case "instances":
			return d.instanceSets()
		}
		return d.ignore()
	})
	if err != nil {
		return err
	}
	return d.end()
}

func (d *decoder) instanceSets() error {
	return d.object(func(name string) error {
		s, err := set(d, &d.in.known().instanceTexts, (*decoder).instances)
		return d.add(name, Feature{Instances: s}, err)
	})
}

// encoded reads spec.encodedInstances: for each feature, the attributes of each instance.
func (d *decoder) encoded() error {
	return d.object(func(name string) error {
		s, err := set(d, nil, (*decoder).encodedList) // hardly two nodes have the same interfaces of pods
		return d.add(name, Feature{Instances: s}, err)
	})
}

func (d *decoder) add(name string, f Feature, err error) error {
	if err != nil {
		return fmt.Errorf("%q: %w", name[:min(len(name), 64)], err)
	}
	if len(d.list) == maxFeatures {
		return errFeatures
	}
	d.list = append(d.list, named{name, f})
	return nil
}

// noTexts replaces the tables of a nil Interner.
var noTexts Interner

// known returns the Interner, or an empty one that is never written to if it is nil.
func (in *Interner) known() *Interner {
	if in == nil {
		return &noTexts
	}
	return in
}

// set reads one set: from the table of known JSON, or with parse. One table is for one parse. A nil table knows none.
func set[T any](d *decoder, sets *table[digest, T], parse func(*decoder) (*T, error)) (*T, error) {
	start := d.pos
	text, err := d.skip()
	if err != nil {
		return nil, err
	}
	var key digest
	known := sets != nil && d.in != nil
	if known {
		key = d.in.digest(text)
		if v := sets.get(key); v != nil {
			return v, nil
		}
	}
	sub := decoder{scanner: scanner{text: text}, in: d.in}
	v, err := parse(&sub)
	if err == nil {
		err = sub.end()
	}
	if err != nil {
		return nil, fmt.Errorf("in the set at offset %d: %w", start, err)
	}
	if known {
		sets.put(key, v)
	}
	return v, nil
}

// count counts an element.
func (d *decoder) count() error {
	if d.elements++; d.elements > maxElements {
		return errElements
	}
	return nil
}

// elementsOf reads the member elements of a set. All known programs write it once per document.
func (d *decoder) elementsOf(read func() error) error {
	return d.object(func(member string) error {
		if member != "elements" {
			return d.ignore()
		}
		return read()
	})
}

func (d *decoder) flags() (*Flags, error) {
	var list []string
	err := d.elementsOf(func() error {
		return d.object(func(name string) error {
			list = append(list, name)
			if err := d.count(); err != nil {
				return err
			}
			if c := d.peek(); c != '{' && c != 'n' {
				return errNotAnObject
			}
			return d.ignore()
		})
	})
	if err != nil {
		return nil, err
	}
	return newFlags(sortedSet(list), d.in), nil
}

func (d *decoder) attributes() (*Attributes, error) {
	var list pairs
	err := d.elementsOf(func() error {
		return d.attributeMap(func(name, value string) { list = append(list, pair{name, value}) })
	})
	if err != nil {
		return nil, err
	}
	sorted, values := list.split()
	return newAttributes(sorted, values, d.in), nil
}

func (d *decoder) instances() (*Instances, error) {
	var b instancesBuilder
	err := d.elementsOf(func() error {
		b = instancesBuilder{}
		return d.instanceList(&b, func() error {
			return d.object(func(member string) error {
				if member != "attributes" {
					return d.ignore()
				}
				return d.attributeMap(b.add)
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return b.build(d.in), nil
}

// encodedList reads the instances of one feature of spec.encodedInstances.
func (d *decoder) encodedList() (*Instances, error) {
	var b instancesBuilder
	if err := d.instanceList(&b, func() error { return d.attributeMap(b.add) }); err != nil {
		return nil, err
	}
	return b.build(d.in), nil
}

func (d *decoder) instanceList(b *instancesBuilder, read func() error) error {
	return d.array(func() error {
		b.next()
		if err := d.count(); err != nil {
			return err
		}
		return read()
	})
}

// attributeMap reads a map of strings, in which null is the empty string.
func (d *decoder) attributeMap(add func(name, value string)) error {
	return d.object(func(name string) error {
		if err := d.count(); err != nil {
			return err
		}
		value := ""
		if !d.null() {
			var err error
			if value, err = d.string(); err != nil {
				return err
			}
		}
		add(name, value)
		return nil
	})
}

// build creates the Facts. Documents list features by type, and those of each type sorted by name.
func (d *decoder) build() *Facts {
	slices.SortStableFunc(d.list, func(a, b named) int { return strings.Compare(a.name, b.name) })
	list := make([]string, 0, len(d.list))
	features := make([]*Feature, 0, len(d.list))
	for i := 0; i < len(d.list); {
		name, f := d.list[i].name, Feature{}
		for ; i < len(d.list) && d.list[i].name == name; i++ {
			f.override(d.list[i].Feature)
		}
		if name == nfdv1alpha1.RuleMatchedFeature {
			continue
		}
		list = append(list, name)
		features = append(features, d.in.Feature(f))
	}
	return &Facts{names: d.in.internNames(list), features: slices.Clip(features)}
}

// override replaces the sets of f by those of o, where o has them.
func (f *Feature) override(o Feature) {
	if o.Flags != nil {
		f.Flags = o.Flags
	}
	if o.Attributes != nil {
		f.Attributes = o.Attributes
	}
	if o.Instances != nil {
		f.Instances = o.Instances
	}
}

type pair struct{ name, value string }

type pairs []pair

// split sorts by name and separates names from values. Of duplicates, the last one wins.
func (p pairs) split() (sorted, values []string) {
	byName := func(a, b pair) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(p, byName) {
		slices.SortStableFunc(p, byName)
	}
	sorted, values = make([]string, 0, len(p)), make([]string, 0, len(p))
	for i, e := range p {
		if i+1 < len(p) && p[i+1].name == e.name {
			continue
		}
		sorted = append(sorted, e.name)
		values = append(values, e.value)
	}
	return sorted, values
}
