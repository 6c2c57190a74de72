package facts

// Overlay is a Source that replaces features of another Source: the derived features of early rules, and rule.matched, which grows
// while rules are evaluated. It is not safe for concurrent use.
type Overlay struct {
	base Source
	// A short list is faster than a map, and costs almost nothing while it is empty.
	list []replaced
}

// replaced is a feature that replaces one of the base.
type replaced struct {
	key  Key
	f    *Feature
	make func() *Feature // nil once f is set
}

// NewOverlay returns an overlay without features of its own. base may be nil.
func NewOverlay(base Source) *Overlay { return &Overlay{base: base} }

// Set replaces a feature. Nil hides it.
func (o *Overlay) Set(name string, f *Feature) {
	o.replace(replaced{key: MakeKey(name), f: f})
}

// SetFunc replaces a feature by the result of make, which is called on the first read: back-references change after each rule, and
// few rules read them.
func (o *Overlay) SetFunc(name string, make func() *Feature) {
	o.replace(replaced{key: MakeKey(name), make: make})
}

func (o *Overlay) replace(r replaced) {
	if i := o.find(r.key); i >= 0 {
		o.list[i] = r
		return
	}
	o.list = append(o.list, r)
}

// find returns the index of a replaced feature, or -1.
func (o *Overlay) find(k Key) int {
	for i := range o.list {
		if o.list[i].key == k {
			return i
		}
	}
	return -1
}

// Feature returns a feature by its exact name, or nil.
func (o *Overlay) Feature(name string) *Feature { return o.lookup(MakeKey(name)) }

func (o *Overlay) lookup(k Key) *Feature {
	i := o.find(k)
	if i < 0 {
		return Lookup(o.base, k)
	}
	r := &o.list[i]
	if r.make != nil {
		f := r.make() // make may itself replace features and so move the list
		o.replace(replaced{key: k, f: f})
		return f
	}
	return r.f
}

// Lookup is like src.Feature, for a prepared name. A nil src has no features.
func Lookup(src Source, k Key) *Feature {
	switch s := src.(type) {
	case *Facts:
		if s == nil {
			return nil
		}
		if i, ok := s.names.find(k); ok {
			return s.features[i]
		}
		return nil
	case *Overlay:
		return s.lookup(k)
	case nil:
		return nil
	}
	return src.Feature(k.name)
}
