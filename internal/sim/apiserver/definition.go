package apiserver

import "reflect"

// The model serves custom resources as an API server does: without the fields that their definition lacks at the time of the request. What
// is stored keeps them until the object is written. A resource whose definition has been deleted is not served. One that never had a
// definition is served with all fields.

// definitions is the resource of definitions.
const definitions = "customresourcedefinitions"

// defined is what the definition of a resource says. It is never modified.
type defined struct {
	absent bool
	schema Object // of objects
}

// define updates what is served after a definition was written, or deleted if it is nil. The caller holds the lock.
func (s *Server) define(name string, definition Object) {
	for _, r := range s.resources {
		if r.Name+"."+r.Group != name {
			continue
		}
		d := &defined{absent: definition == nil}
		spec, _ := definition["spec"].(Object)
		versions, _ := spec["versions"].([]any)
		for _, v := range versions {
			if v, is := v.(Object); is && v["name"] == r.Version {
				schema, _ := v["schema"].(Object)
				d.schema, _ = schema["openAPIV3Schema"].(Object)
			}
		}
		s.defined[r] = d
	}
}

// prune returns an object as it is served and stored now: without the fields that the definition lacks. The caller holds the lock, and must not
// modify the result.
func (s *Server) prune(r *Resource, o Object) Object {
	if d := s.defined[r]; o != nil && d != nil && d.schema != nil {
		return d.prune(o)
	}
	return o
}

// prune returns an object without the fields that the definition lacks, or the object if it has none of them.
func (d *defined) prune(o Object) Object {
	if d.schema["x-kubernetes-preserve-unknown-fields"] == true {
		return o
	}
	out := Object{}
	fields, _ := d.schema["properties"].(Object)
	for name, value := range o {
		schema, has := fields[name].(Object)
		switch {
		case name == "metadata" || name == "kind" || name == "apiVersion":
			out[name] = value
		case has:
			out[name] = prune(schema, value)
		}
	}
	if reflect.DeepEqual(out, o) {
		return o
	}
	return deepCopy(out)
}

// prune returns a value without the fields that its schema lacks.
func prune(schema Object, v any) any {
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return v
	}
	switch v := v.(type) {
	case Object:
		fields, _ := schema["properties"].(Object)
		others, open := schema["additionalProperties"].(Object)
		out := Object{}
		for name, value := range v {
			if of, has := fields[name].(Object); has {
				out[name] = prune(of, value)
			} else if open {
				out[name] = prune(others, value)
			}
		}
		return out
	case []any:
		items, _ := schema["items"].(Object)
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = prune(items, value)
		}
		return out
	}
	return v
}
