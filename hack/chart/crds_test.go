package chart

import (
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// TestDefinitionsAreAppliedLast renders the hook that applies the definitions: after the hooks of operators, which write definitions of Node
// Feature Discovery and have weight 1, and as an account that may write exactly the definitions of the chart.
func TestDefinitionsAreAppliedLast(t *testing.T) {
	all := objects(t, mustRender(t, nil))
	own := definitions(t)
	for _, object := range own {
		name := at(object, "metadata.name").(string)
		for _, verb := range []string{"get", "patch"} {
			if !allows(roles(t, all)["ClusterRole/assay-crds"], "apiextensions.k8s.io", "customresourcedefinitions", name, verb) {
				t.Errorf("the hook may not %s %s", verb, name)
			}
		}
		// docs/install.md deletes them by the label.
		if at(object, "metadata.labels.app.kubernetes.io/part-of") != "assay" || at(object, "metadata.annotations.helm.sh/resource-policy") != "keep" {
			t.Errorf("%s lacks the label part-of, or the annotation by which Helm keeps it", name)
		}
	}
	weights := map[string]int{}
	for _, object := range all {
		if at(object, "metadata.annotations.helm.sh/hook") != "pre-install,pre-upgrade" {
			continue
		}
		weight, err := strconv.Atoi(at(object, "metadata.annotations.helm.sh/hook-weight").(string))
		if err != nil {
			t.Fatal(err)
		}
		weights[identity(object)] = weight
		if _, spec := pod(t, object); spec != nil {
			if spec.PriorityClassName != "system-cluster-critical" {
				t.Errorf("the pod has the priority class %q, which does not exist before the installation", spec.PriorityClassName)
			}
			if got := strings.Join(spec.Containers[0].Args, " "); got != "apply-definitions" {
				t.Errorf("the hook runs %q", got)
			}
		}
	}
	if len(own) != 9 || len(weights) != 4 || weights["Job/assay-system/assay-crds"] != 1000 || weights["ClusterRole//assay-crds"] != 999 {
		t.Errorf("there are %d definitions, and hooks with the weights %v", len(own), weights)
	}
}

// TestAnUpgradeDeletesNoRules renders an upgrade of a release that has the definitions among its objects: without an annotation Helm deletes
// them, and so all rules.
func TestAnUpgradeDeletesNoRules(t *testing.T) {
	lists := map[schema.GroupVersionResource]string{{Group: "apps", Version: "v1", Resource: "deployments"}: "DeploymentList"}
	for name, test := range map[string]struct {
		annotations map[string]any
		rejected    bool
	}{
		"Deleted":      {map[string]any{"meta.helm.sh/release-name": "assay", "meta.helm.sh/release-namespace": "assay-system"}, true},
		"Kept":         {map[string]any{"meta.helm.sh/release-name": "assay", "meta.helm.sh/release-namespace": "assay-system", "helm.sh/resource-policy": "keep"}, false},
		"OtherRelease": {map[string]any{"meta.helm.sh/release-name": "nfd", "meta.helm.sh/release-namespace": "assay-system"}, false},
		"NoRelease":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "nodefeaturerules.nfd.k8s-sigs.io", "annotations": test.annotations},
			}}
			values, err := chartutil.ToRenderValues(load(t), nil, common.ReleaseOptions{Name: "assay", Namespace: "assay-system", Revision: 2, IsUpgrade: true}, common.DefaultCapabilities.Copy())
			if err != nil {
				t.Fatal(err)
			}
			_, err = engine.RenderWithClientProvider(load(t), values, served{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, crd)})
			if test.rejected != (err != nil) || err != nil && !strings.Contains(err.Error(), "First run: kubectl annotate crd") {
				t.Errorf("got error %v, want one: %t", err, test.rejected)
			}
		})
	}
}

// served is a cluster with some definitions and nothing else.
type served struct{ dynamic.Interface }

func (s served) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	resource := schema.FromAPIVersionAndKind(apiVersion, kind).GroupVersion().WithResource(strings.ToLower(kind) + "s")
	return s.Resource(resource), false, nil
}
