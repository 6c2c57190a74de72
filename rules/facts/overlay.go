package facts

// Overlay is a Source over another one, in which some features are replaced: the derived features of early rules, and
// rule.matched, which grows while rules are evaluated. It is not safe for concurrent use.
type Overlay struct {
	base  Source
	over  map[string]*Feature
	lazy  map[string]func() *Feature
	known bool // whether anything was set, so that an empty overlay costs nothing
}

// NewOverlay returns an overlay that replaces nothing yet; base may be nil.
func NewOverlay(base Source) *Overlay { return &Overlay{base: base} }

// Set replaces a feature; nil hides it.
func (o *Overlay) Set(name string, f *Feature) {
	if o.over == nil {
		o.over = map[string]*Feature{}
	}
	o.known = true
	o.over[name] = f
	delete(o.lazy, name)
}

// SetFunc replaces a feature by what make returns when it is first asked for: back-references are set after each rule and
// read by few.
func (o *Overlay) SetFunc(name string, make func() *Feature) {
	if o.lazy == nil {
		o.lazy = map[string]func() *Feature{}
	}
	o.known = true
	o.lazy[name] = make
}

// Feature returns a feature by its exact name, or nil.
func (o *Overlay) Feature(name string) *Feature {
	if o.known {
		if make, ok := o.lazy[name]; ok {
			o.Set(name, make())
		}
		if f, ok := o.over[name]; ok {
			return f
		}
	}
	if o.base == nil {
		return nil
	}
	return o.base.Feature(name)
}

// Lookup is src.Feature for a prepared name.
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
		if !s.known && s.base != nil {
			return Lookup(s.base, k)
		}
	case nil:
		return nil
	}
	return src.Feature(k.name)
}
