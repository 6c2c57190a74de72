package discovery

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Restore gives each source that has no result of its own yet the features of its domain that an earlier process found, as its last
// good result. A source without features there stays unread: that process may not have read it either. Restore also keeps labels of that process as long as nothing better is known: those of such sources, and while sources are
// missing also those that rules or files on the node may have given. The next report contains both. Features and labels of sources
// that are not selected are ignored.
func (r *Runner) Restore(features *nfdv1alpha1.Features, labels map[string]string) {
	for _, e := range r.sources {
		if !e.good {
			e.last = Result{Features: inDomain(features, e.Name())}
			f := &e.last.Features
			e.restored = len(f.Flags)+len(f.Attributes)+len(f.Instances) > 0
		}
	}
	r.kept, r.fresh = labels, true
}

// inDomain returns the features that one source found.
func inDomain(f *nfdv1alpha1.Features, domain string) nfdv1alpha1.Features {
	return nfdv1alpha1.Features{
		Flags: ofDomain(f.Flags, domain), Attributes: ofDomain(f.Attributes, domain), Instances: ofDomain(f.Instances, domain),
	}
}

func ofDomain[V any](sets map[string]V, domain string) map[string]V {
	out := map[string]V{}
	for name, set := range sets {
		if strings.HasPrefix(name, domain+".") && !nfdv1alpha1.DescribesPublication(name) {
			out[name] = set
		}
	}
	return out
}

// keep returns the labels given to Restore that are still needed, and forgets them once all sources have results.
func (r *Runner) keep() map[string]string {
	if r.kept == nil {
		return nil
	}
	if !slices.ContainsFunc(r.sources, func(e *entry) bool { return !e.good }) {
		r.kept = nil
		return nil
	}
	out := map[string]string{}
	for name, value := range r.kept {
		if r.keeps(name, value) {
			out[name] = value
		}
	}
	return out
}

// keeps reports whether a source that has no result of its own may have given a label. A Deriver has none as long as a source is
// missing, whose features it lacks.
func (r *Runner) keeps(name, value string) bool {
	domain, _, _ := strings.Cut(name, "-")
	owner, hardware := r.domains[domain]
	if hardware && owner.labels && !owner.good {
		return true
	}
	missing := slices.ContainsFunc(r.sources, func(e *entry) bool { return !e.answered })
	return slices.ContainsFunc(r.sources, func(e *entry) bool {
		if !e.labels || priority(e.Source) == BuiltinPriority {
			return false
		}
		if _, derives := e.Source.(Deriver); e.good && !(derives && missing) {
			return false
		}
		return !hardware || e.gave(name, value)
	})
}

// gave reports whether a label is also an attribute among the features of a source, as those of files are.
func (e *entry) gave(name, value string) bool {
	for _, set := range e.last.Features.Attributes {
		if v, ok := set.Elements[name]; ok && v == value {
			return true
		}
	}
	return false
}
