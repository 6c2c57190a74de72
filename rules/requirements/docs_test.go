package requirements_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// TestDocumentedExamplesCompile compiles the YAML in docs/scheduling.md.
func TestDocumentedExamplesCompile(t *testing.T) {
	text, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, block := range strings.Split(string(text), "```yaml")[1:] {
		_, block, _ = strings.Cut(block, "\n") // the name of the file follows
		block, _, _ = strings.Cut(block, "```")
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(block), &kind); err != nil {
			t.Fatal(err)
		}
		found[kind.Kind]++
		report := &rules.Report{}
		switch kind.Kind {
		case "Pod":
			var o corev1.Pod
			strict(t, block, &o)
			var reqs *requirements.Requirements
			if reqs, report = requirements.Annotations(o.Annotations, field.NewPath("metadata"), rules.Options{}); reqs == nil {
				t.Error("the pod asks for nothing")
			}
		case "NodeFeatureRequest":
			var o assayv1alpha1.NodeFeatureRequest
			strict(t, block, &o)
			_, report = requirements.Compile(&o.Spec.PodRequirements, field.NewPath("spec"), o.Name, rules.Options{})
		case "NodeFeatureSchedulingPolicy":
			var o assayv1alpha1.NodeFeatureSchedulingPolicy
			strict(t, block, &o)
			_, report = requirements.CompilePolicy(&o, rules.Options{})
		}
		if !report.OK() || len(report.Warnings) > 0 {
			t.Errorf("%s: %v %v", kind.Kind, report.Errors, report.Warnings)
		}
	}
	for _, kind := range []string{"Pod", "NodeFeatureRequest", "NodeFeatureSchedulingPolicy"} {
		if found[kind] == 0 {
			t.Errorf("there is no %s among %v", kind, found)
		}
	}
}

func strict(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
