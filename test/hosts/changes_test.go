package hosts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
)

// changesOf describes how a report differs from another one.
func changesOf(want, got *discovery.Report) (out []string) {
	features := slices.Sorted(maps.Keys(names(want, got)))
	for _, name := range features {
		out = append(out, attributeChanges(name, want.Features.Attributes, got.Features.Attributes)...)
		out = append(out, flagChanges(name, want.Features.Flags, got.Features.Flags)...)
		out = append(out, instanceChanges(name, want.Features.Instances, got.Features.Instances)...)
	}
	gone := 0
	for label, value := range want.Labels {
		if now, ok := got.Labels[label]; !ok {
			gone++
		} else if now != value {
			out = append(out, fmt.Sprintf("label %s %s", label, now))
		}
	}
	if gone > 0 {
		out = append(out, fmt.Sprintf("%d fewer labels", gone))
	}
	for _, label := range slices.Sorted(maps.Keys(got.Labels)) {
		if _, ok := want.Labels[label]; !ok {
			out = append(out, fmt.Sprintf("new label %s=%s", label, got.Labels[label]))
		}
	}
	slices.Sort(out)
	return out
}

// names returns the names of the features in the reports, without the one that names sources that have not been read.
func names(reports ...*discovery.Report) map[string]bool {
	all := map[string]bool{}
	for _, r := range reports {
		for name := range r.Features.Flags {
			all[name] = true
		}
		for name := range r.Features.Attributes {
			all[name] = true
		}
		for name := range r.Features.Instances {
			all[name] = true
		}
	}
	delete(all, nfdv1alpha1.UnreadFeature)
	return all
}

func attributeChanges(name string, want, got map[string]nfdv1alpha1.AttributeFeatureSet) (out []string) {
	before, had := want[name]
	after, has := got[name]
	switch {
	case had && !has:
		return []string{name + " absent"}
	case had && len(before.Elements) > 0 && len(after.Elements) == 0:
		return []string{name + " {}"}
	}
	var gone []string
	for _, k := range slices.Sorted(maps.Keys(before.Elements)) {
		now, ok := after.Elements[k]
		switch v := before.Elements[k]; {
		case !ok:
			gone = append(gone, k)
		case now != v:
			out = append(out, fmt.Sprintf("%s %s=%q", name, k, now))
		}
	}
	switch {
	case len(gone) > 5:
		out = append(out, fmt.Sprintf("%s without %d elements", name, len(gone)))
	case len(gone) > 0:
		out = append(out, name+" without "+strings.Join(gone, ", "))
	}
	for _, k := range slices.Sorted(maps.Keys(after.Elements)) {
		if _, ok := before.Elements[k]; !ok {
			out = append(out, fmt.Sprintf("%s new %s=%q", name, k, after.Elements[k]))
		}
	}
	return out
}

func flagChanges(name string, want, got map[string]nfdv1alpha1.FlagFeatureSet) []string {
	before, had := want[name]
	after, has := got[name]
	switch {
	case had && !has:
		return []string{name + " absent"}
	case len(before.Elements) != len(after.Elements):
		return []string{fmt.Sprintf("%s with fewer flags: %t", name, len(after.Elements) < len(before.Elements))}
	}
	return nil
}

func instanceChanges(name string, want, got map[string]nfdv1alpha1.InstanceFeatureSet) (out []string) {
	before, had := want[name]
	after, has := got[name]
	switch {
	case had && !has:
		return []string{name + " absent"}
	case len(before.Elements) > 0 && len(after.Elements) == 0:
		return []string{name + " []"}
	case len(before.Elements) != len(after.Elements):
		return []string{fmt.Sprintf("%s with fewer instances: %t", name, len(after.Elements) < len(before.Elements))}
	}
	changes := map[string]bool{}
	for i, e := range before.Elements {
		now := after.Elements[i].Attributes
		for k, v := range e.Attributes {
			switch got, ok := now[k]; {
			case !ok:
				changes[name+" instance without "+k] = true
			case got != v:
				changes[fmt.Sprintf("%s instance with %s=%q", name, k, got)] = true
			}
		}
		for k, v := range now {
			if _, ok := e.Attributes[k]; !ok {
				changes[fmt.Sprintf("%s instance with new %s=%q", name, k, v)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(changes))
}
