package hosts_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/test/hosts"
)

var update = flag.Bool("update", false, "write the NodeFeatures that are expected")

// TestDiscoversWholeMachine compares the features and labels of a machine with the NodeFeature in its directory.
func TestDiscoversWholeMachine(t *testing.T) {
	for _, name := range hosts.Names {
		t.Run(name, func(t *testing.T) {
			h := open(t, name)
			report := discover(t, h)
			for _, p := range report.Problems {
				t.Errorf("problem: %v", p)
			}
			got, err := yaml.Marshal(nodeFeature(h.System.NodeName(), report))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(name, "nodefeature.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test ./test/hosts -update writes it)", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("NodeFeature differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDiscoveryOfEqualMachinesIsEqual(t *testing.T) {
	h := open(t, "server")
	first := discover(t, h)
	for range 5 {
		again := discover(t, h)
		if diff := cmp.Diff(first.Features, again.Features); diff != "" {
			t.Fatalf("features differ between runs (-first +later):\n%s", diff)
		}
		if diff := cmp.Diff(first.Labels, again.Labels); diff != "" {
			t.Fatalf("labels differ between runs (-first +later):\n%s", diff)
		}
	}
}

// discover runs all sources in a bubble of synctest: time stands still while a source works, so no source exceeds its timeout because
// the machine is slow.
func discover(t *testing.T, h host.Host) (report *discovery.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		report = discovery.Run(t.Context(), h, builtin.Sources(builtin.DefaultConfig()))
	})
	return report
}

func open(t testing.TB, name string) host.Host {
	t.Helper()
	h, err := hosts.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func nodeFeature(node string, report *discovery.Report) *nfdv1alpha1.NodeFeature {
	return &nfdv1alpha1.NodeFeature{
		TypeMeta:   metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{Features: report.Features, Labels: report.Labels},
	}
}

func diffReports(want, got *discovery.Report) string {
	return cmp.Diff(want.Features, got.Features) + cmp.Diff(want.Labels, got.Labels)
}
