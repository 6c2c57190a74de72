package definition

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
)

// served returns this version's definition of NodeFeatureRules without some fields of its spec.
func served(t *testing.T, without ...string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &out.Object); err != nil {
		t.Fatal(err)
	}
	out.SetUID("1")
	version := out.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	fields, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(fields, func(name string, _ any) bool { return slices.Contains(without, name) })
	if err := unstructured.SetNestedMap(version, fields, "schema", "openAPIV3Schema", "properties", "spec", "properties"); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheStateOfADefinition compares definitions with that of this version, to which one with version 2 has added the field phase.
func TestTheStateOfADefinition(t *testing.T) {
	since[Rules] = map[string]int{"spec.phase": 2}
	t.Cleanup(func() { delete(since, Rules) })
	const own = assayv1alpha1.DefinitionVersionAnnotation
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		without []string
		version string
		deleted *metav1.Time
		state   State
		missing []string
	}{
		"Whole":                      {version: "2", state: Whole},
		"WholeOfAnotherProgram":      {state: Whole},
		"OlderWithoutTheNewField":    {without: []string{"phase"}, version: "1", state: Older, missing: []string{"spec.phase"}},
		"OldAnnotationAndNFDsFields": {without: []string{"phase", "priority"}, version: "1", state: Foreign, missing: []string{"spec.phase", "spec.priority"}},
		"LostWhatItsVersionHas":      {without: []string{"phase"}, version: "2", state: Foreign, missing: []string{"spec.phase"}},
		"Foreign":                    {without: []string{"phase"}, state: Foreign, missing: []string{"spec.phase"}},
		"AnnotationIsNoNumber":       {without: []string{"phase"}, version: "v1", state: Foreign, missing: []string{"spec.phase"}},
		"BeingDeleted":               {version: "2", deleted: &deleted, state: Absent},
	} {
		t.Run(name, func(t *testing.T) {
			d := served(t, tc.without...)
			d.SetAnnotations(map[string]string{own: tc.version})
			d.SetDeletionTimestamp(tc.deleted)
			got, err := Of(d)
			if err != nil || got.State != tc.state || !slices.Equal(got.Missing, tc.missing) {
				t.Errorf("%s without %v, %v; want %s without %v", got.State, got.Missing, err, tc.state, tc.missing)
			}
		})
	}
	if _, err := Of(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "pods"}}}); err == nil {
		t.Error("a definition of another program has a state")
	}
}

// TestFieldsSinceAVersionExist: with a wrong path, an older definition of Assay would count as another program's.
func TestFieldsSinceAVersionExist(t *testing.T) {
	all, err := own()
	if err != nil {
		t.Fatal(err)
	}
	for name, fields := range since {
		for field, version := range fields {
			if version < 2 || version > assayv1alpha1.DefinitionVersion {
				t.Errorf("%s of %s is since version %d", field, name, version)
			}
			path := []string{}
			for part := range strings.SplitSeq(field, ".") {
				path = append(path, "properties", strings.TrimSuffix(part, "[]"))
				if strings.HasSuffix(part, "[]") {
					path = append(path, "items")
				}
			}
			if _, found, err := unstructured.NestedMap(all[name].schema, path[1:]...); !found || err != nil {
				t.Errorf("%s has no field %s", name, field)
			}
		}
	}
}

// TestTheLastWriterOfADefinition is the one of its spec: others write its status and its labels.
func TestTheLastWriterOfADefinition(t *testing.T) {
	entry := func(manager string, second int64, fields, subresource string) metav1.ManagedFieldsEntry {
		at := metav1.Unix(second, 0)
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &at, FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource}
	}
	got := LastWriter([]metav1.ManagedFieldsEntry{
		entry("helm", 1, `{"f:spec":{}}`, ""), entry("manage-crds", 3, `{"f:spec":{}}`, ""),
		entry("kube-apiserver", 5, `{"f:status":{}}`, "status"), entry("kubectl-label", 4, `{"f:metadata":{}}`, ""),
	})
	if got != "manage-crds" {
		t.Errorf("got %q, want manage-crds", got)
	}
}
