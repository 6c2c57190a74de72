package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/publish"
)

// content returns the part of a report to publish, and the problems of the rest.
func (w *Worker) content(r *discovery.Report) (publish.Content, []string) {
	f := nfdv1alpha1.Features{
		Flags:      maps.Clone(r.Features.Flags),
		Attributes: maps.Clone(r.Features.Attributes),
		Instances:  maps.Clone(r.Features.Instances),
	}
	withhold(f.Flags, w.config.NoPublishFeatures)
	withhold(f.Attributes, w.config.NoPublishFeatures)
	withhold(f.Instances, w.config.NoPublishFeatures)
	labels, problems := w.labels(r.Labels)
	return publish.Content{Features: f, Labels: labels, Rejected: w.rejected}, problems
}

// withhold deletes features by name. A trailing * matches any suffix. What describes the publication stays: without it, the controller would
// take what is withheld, or of an earlier boot, for what the node has.
func withhold[V any](sets map[string]V, names []string) {
	maps.DeleteFunc(sets, func(feature string, _ V) bool {
		return !nfdv1alpha1.DescribesPublication(feature) && slices.ContainsFunc(names, func(name string) bool {
			prefix, all := strings.CutSuffix(name, "*")
			return feature == name || all && strings.HasPrefix(feature, prefix)
		})
	})
}

// labels drops labels that are invalid or do not match the white list, and returns the reasons.
func (w *Worker) labels(in map[string]string) (map[string]string, []string) {
	out := make(map[string]string, len(in))
	var problems []string
	for name, value := range in {
		if w.config.LabelWhiteList != nil && !w.config.LabelWhiteList.MatchString(name[strings.LastIndexByte(name, '/')+1:]) {
			continue
		}
		if why := wrongLabel(name, value); why != "" {
			problems = append(problems, fmt.Sprintf("label %q=%q is left out: %s", name, value, why))
			continue
		}
		out[name] = value
	}
	return out, problems
}

// wrongLabel returns the reason why a label is invalid, or "".
func wrongLabel(name, value string) string {
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "name: " + errs[0]
	}
	if strings.HasPrefix(value, "@") {
		return "" // the controller resolves the reference
	}
	if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
		return "value: " + errs[0]
	}
	return ""
}

func sameContent(a, b *publish.Content) bool {
	return a.Rejected == b.Rejected && maps.Equal(a.Labels, b.Labels) && discovery.SameFeatures(&a.Features, &b.Features)
}
