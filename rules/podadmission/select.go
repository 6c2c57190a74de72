package podadmission

import (
	"maps"
	"slices"
)

// Select returns the changes that add labels to a node selector, and remove keys that are not among them. path is that of the
// selector in the object.
func Select(path string, selector, add map[string]string, remove []string) (out []Patch) {
	slices.Sort(remove)
	for _, key := range slices.Compact(remove) {
		_, wanted := add[key]
		if _, has := selector[key]; has && !wanted {
			out = append(out, Patch{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	if len(selector) == 0 && len(add) > 0 {
		return append(out, Patch{"add", path, add})
	}
	for _, key := range slices.Sorted(maps.Keys(add)) {
		if have, has := selector[key]; !has || have != add[key] {
			out = append(out, Patch{"add", path + "/" + escape(key), add[key]})
		}
	}
	return out
}
