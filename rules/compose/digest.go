package compose

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// The two kinds of digests that a base can be pinned to.
const (
	ownPrefix  = "sha256:"      // of the spec of the base itself
	treePrefix = "tree:sha256:" // of the base assembled with its own bases
)

// Digest returns the digest of a spec without its bases, sha256:HEX.
func Digest(spec *nfdv1alpha1.NodeFeatureRuleSpec) string {
	return digest(Canonical(spec))
}

func digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return ownPrefix + hex.EncodeToString(sum[:])
}

// treeDigest returns the digest of an assembled spec, followed by the wildcards, and checks its maximum size.
func treeDigest(spec *nfdv1alpha1.NodeFeatureRuleSpec) (string, error) {
	text := Canonical(spec)
	if len(text) > MaxResult {
		return "", &LimitError{What: "bytes in the result", Got: len(text), Limit: MaxResult}
	}
	return "tree:" + digest(text), nil
}

// checkDigests compares the documents with the digests in the references to them. get returns the digest of a document, of its own
// spec or of its tree; ok is false if the document is not available.
func (g *graph[D]) checkDigests(order []int, get func(doc int, tree bool) (digest string, ok bool, err error)) error {
	type asked struct {
		doc  int
		tree bool
	}
	known := map[asked]string{}
	var problems Errors
	for _, from := range order {
		for _, e := range g.docs[from].bases {
			if e.ref.Digest == "" {
				continue
			}
			q := asked{e.to, strings.HasPrefix(e.ref.Digest, treePrefix)}
			got, ok := known[q]
			if !ok {
				var err error
				if got, ok, err = get(q.doc, q.tree); err != nil {
					return err
				}
				if !ok {
					continue
				}
				known[q] = got
			}
			if got != e.ref.Digest {
				problems = append(problems, &DigestError{Base: g.docs[e.to].id, From: g.docs[from].id, Want: e.ref.Digest, Got: got})
			}
		}
	}
	return problems.orNil()
}

// Canonical returns the canonical JSON of a spec: sorted names, no white space, only required escapes, and no absent or empty
// fields, since an absent field can be written in several ways. A pointer field is kept even if its value is empty: priority 0
// differs from no priority, and matchExpressions {} matches anything.
func Canonical(spec *nfdv1alpha1.NodeFeatureRuleSpec) []byte {
	var c canonical
	c.value(reflect.ValueOf(spec).Elem())
	return c.out
}

// canonical writes canonical JSON.
type canonical struct{ out []byte }

var rawJSON = reflect.TypeFor[nfdv1alpha1.JSON]()

func (c *canonical) value(v reflect.Value) {
	if v.Type() == rawJSON {
		c.raw(v.Interface().(nfdv1alpha1.JSON))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			c.out = append(c.out, "null"...)
			return
		}
		if m, ok := v.Interface().(json.Marshaler); ok && v.Elem().Type() != rawJSON {
			c.any(m)
			return
		}
		c.value(v.Elem())
	case reflect.String:
		c.text(v.String())
	case reflect.Map:
		c.mapping(v)
	case reflect.Slice:
		c.out = append(c.out, '[')
		for i := range v.Len() {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			c.value(v.Index(i))
		}
		c.out = append(c.out, ']')
	case reflect.Struct:
		c.structure(v)
	default:
		c.any(v.Interface())
	}
}

func (c *canonical) structure(v reflect.Value) {
	c.out = append(c.out, '{')
	first := true
	for _, f := range fieldsOf(v.Type()) {
		field := v.Field(f.index)
		if field.IsZero() || (field.Kind() == reflect.Map || field.Kind() == reflect.Slice) && field.Len() == 0 {
			continue
		}
		if !first {
			c.out = append(c.out, ',')
		}
		first = false
		c.text(f.name)
		c.out = append(c.out, ':')
		c.value(field)
	}
	c.out = append(c.out, '}')
}

func (c *canonical) mapping(v reflect.Value) {
	keys := make([]string, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		keys = append(keys, it.Key().String())
	}
	slices.Sort(keys)
	plain, isPlain := v.Interface().(map[string]string)
	c.out = append(c.out, '{')
	for i, k := range keys {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.text(k)
		c.out = append(c.out, ':')
		if isPlain {
			c.text(plain[k])
			continue
		}
		c.value(v.MapIndex(reflect.ValueOf(k)))
	}
	c.out = append(c.out, '}')
}

// text writes a string. It uses encoding/json only if the string may need escapes.
func (c *canonical) text(s string) {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b == '"' || b == '\\' || b >= 0x7f {
			c.any(s)
			return
		}
	}
	c.out = append(c.out, '"')
	c.out = append(c.out, s...)
	c.out = append(c.out, '"')
}

// raw writes a value of unknown type. encoding/json sorts its keys. Numbers are kept as written.
func (c *canonical) raw(j nfdv1alpha1.JSON) {
	v, err := j.Decode()
	if err != nil { // cannot happen after decoding JSON
		v = string(j.Raw)
	}
	c.any(v)
}

func (c *canonical) any(v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		b.Reset()
		b.WriteString("null") // all types of a spec can be encoded
	}
	c.out = append(c.out, bytes.TrimRight(b.Bytes(), "\n")...)
}

// fieldName is a field of a struct and its JSON name.
type fieldName struct {
	index int
	name  string
}

var fieldNames sync.Map // reflect.Type -> []fieldName, sorted by name; one entry for each struct of the API

func fieldsOf(t reflect.Type) []fieldName {
	if known, ok := fieldNames.Load(t); ok {
		return known.([]fieldName)
	}
	var out []fieldName
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" {
			out = append(out, fieldName{i, name})
		}
	}
	slices.SortFunc(out, func(a, b fieldName) int { return strings.Compare(a.name, b.name) })
	fieldNames.Store(t, out)
	return out
}
