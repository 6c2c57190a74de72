package facts

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Unread returns the sources that the worker has not read since the node booted, sorted; nil: it has read all, or does not say.
func (f *Facts) Unread() []string { return UnreadIn(f) }

// UnreadIn is Unread for any source of features.
func UnreadIn(s Source) []string {
	if f := s.Feature(nfdv1alpha1.UnreadFeature); f != nil {
		return f.Flags.Names()
	}
	return nil
}

// UnreadOf returns those of the unread sources that find one of the features.
func UnreadOf(unread, features []string) (out []string) {
	for _, source := range unread {
		if slices.ContainsFunc(features, func(name string) bool { return domainOf(name) == source }) {
			out = append(out, source)
		}
	}
	return out
}

// MayHaveLabel reports, of the facts of the node's own worker, whether a source that it has not read may give a label, which has no namespace:
// one of its own, whose name begins with that of the source, or one of a rule or a file on the node, whose name begins with that of no source
// which the worker has read.
func (f *Facts) MayHaveLabel(name string) bool {
	unread := f.Unread()
	if len(unread) == 0 {
		return false
	}
	source, _, _ := strings.Cut(name, "-")
	return slices.Contains(unread, source) || !slices.ContainsFunc(f.Names(), func(feature string) bool { return domainOf(feature) == source })
}

// domainOf returns the source that finds a feature; empty: it describes the publication, which no source does.
func domainOf(feature string) string {
	if nfdv1alpha1.DescribesPublication(feature) {
		return ""
	}
	domain, _, _ := strings.Cut(strings.ToLower(feature), ".")
	return domain
}

// WhyUnread says that sources have not been read.
func WhyUnread(sources []string) string {
	if len(sources) == 1 {
		return "the worker has not read the source " + sources[0] + " since the node booted"
	}
	return "the worker has not read the sources " + strings.Join(sources, ", ") + " since the node booted"
}
