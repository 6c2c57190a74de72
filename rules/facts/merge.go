package facts

// Merge merges the facts of several publishers of one node: it unites flags, replaces attributes one by one (later facts in the
// list win), and appends instances, including duplicates. Sets that only one of the facts has are shared, not copied.
func Merge(in *Interner, list ...*Facts) *Facts {
	if len(list) == 1 && list[0] != nil {
		return list[0]
	}
	parts := map[string][]*Feature{}
	for _, f := range list {
		for i, name := range f.Names() {
			parts[name] = append(parts[name], f.features[i])
		}
	}
	b := builder{}
	for name, features := range parts {
		*b.at(name) = mergeFeatures(in, features)
	}
	return b.build(in)
}

func mergeFeatures(in *Interner, features []*Feature) Feature {
	if len(features) == 1 && in.owns(features[0]) {
		return *features[0]
	}
	var flags []*Flags
	var attributes []*Attributes
	var instances []*Instances
	for _, f := range features {
		if f.Flags != nil {
			flags = append(flags, f.Flags)
		}
		if f.Attributes != nil {
			attributes = append(attributes, f.Attributes)
		}
		if f.Instances != nil {
			instances = append(instances, f.Instances)
		}
	}
	return Feature{Flags: mergeFlags(in, flags), Attributes: mergeAttributes(in, attributes), Instances: mergeInstances(in, instances)}
}

func mergeFlags(in *Interner, list []*Flags) *Flags {
	if len(list) < 2 {
		return in.Flags(first(list))
	}
	var all []string
	for _, f := range list {
		all = append(all, f.Names()...)
	}
	return newFlags(sortedSet(all), in)
}

func mergeAttributes(in *Interner, list []*Attributes) *Attributes {
	if len(list) < 2 {
		return in.Attributes(first(list))
	}
	all := map[string]string{}
	for _, a := range list {
		for i, name := range a.Names() {
			all[name] = a.values[i]
		}
	}
	return attributesFromMap(all, in)
}

func mergeInstances(in *Interner, list []*Instances) *Instances {
	if len(list) < 2 {
		return in.Instances(first(list))
	}
	var all []map[string]string
	for _, s := range list {
		all = append(all, s.Select(nil)...)
	}
	return instancesFromMaps(all, in)
}

// first returns the first element of a list, or nil.
func first[T any](list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}
