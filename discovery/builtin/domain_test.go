package builtin_test

import (
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/test/hosts"
)

// TestEverySourceKeepsToItsDomain: what a worker keeps of a source that does not answer is found by the source's name.
func TestEverySourceKeepsToItsDomain(t *testing.T) {
	for _, name := range hosts.Names {
		h, err := hosts.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range builtin.Sources(builtin.DefaultConfig()) {
			report := discovery.Run(t.Context(), h, []discovery.Source{s})
			var features []string
			for f := range report.Features.Flags {
				features = append(features, f)
			}
			for f := range report.Features.Attributes {
				features = append(features, f)
			}
			for f := range report.Features.Instances {
				features = append(features, f)
			}
			for _, f := range features {
				if !strings.HasPrefix(f, s.Name()+".") && !nfdv1alpha1.DescribesPublication(f) {
					t.Errorf("%s: source %s found feature %s", name, s.Name(), f)
				}
			}
			for label := range report.Labels {
				if !strings.HasPrefix(label, s.Name()+"-") {
					t.Errorf("%s: source %s gave label %s", name, s.Name(), label)
				}
			}
		}
	}
}
