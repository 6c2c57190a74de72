package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// TestKustomizeBaseIsWhatTheChartRenders builds the base with the component as kubectl does. It also has a Namespace, and no hooks. The
// base alone has no kind that clusters before 1.36 do not have.
func TestKustomizeBaseIsWhatTheChartRenders(t *testing.T) {
	for id := range kustomized(t, filesys.MakeFsOnDisk(), "../../hack/kustomize/base") {
		if strings.HasPrefix(id, "MutatingAdmissionPolicy") {
			t.Errorf("the base has %s", id)
		}
	}
	overlay := t.TempDir()
	paths := []string{}
	for _, name := range []string{"base", "feature-request"} {
		absolute, err := filepath.Abs("../../hack/kustomize/" + name)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(overlay, absolute)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	text := fmt.Sprintf("resources: [%q]\ncomponents: [%q]\n", paths[0], paths[1])
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kustomized(t, filesys.MakeFsOnDisk(), overlay)
	want := map[string]any{"Namespace//assay-system": got["Namespace//assay-system"]}
	for _, object := range append(objects(t, mustRender(t, nil)), definitions(t)...) {
		if at(object, "metadata.annotations.helm.sh/hook") == nil {
			want[identity(object)] = comparable(portable(object))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || got["Namespace//assay-system"] == nil {
		t.Errorf("the base (-chart +base); run make chart:\n%s", diff)
	}
	for id, object := range got {
		if strings.HasPrefix(id, "CustomResourceDefinition/") && at(object, "part-of") != "assay" {
			t.Errorf("%s lacks the label by which the definitions are deleted", id)
		}
	}
}

// portable changes an object of the chart as overlays of the base need it: names are arguments of their own, and policies bind accounts in any
// namespace, with any prefix and suffix.
func portable(object map[string]any) map[string]any {
	containers, _ := at(object, "spec.template.spec.containers").([]any)
	for _, c := range containers {
		container := c.(map[string]any)
		args, _ := container["args"].([]any)
		var out []any
		for _, arg := range args {
			flag, value, ok := strings.Cut(arg.(string), "=")
			if ok && slices.Contains([]string{"--cert-secret", "--service", "--configuration", "--worker-service-account", "--controller-service-account"}, flag) {
				out = append(out, flag, value)
			} else {
				out = append(out, arg)
			}
		}
		if args != nil {
			container["args"] = out
		}
	}
	if object["kind"] == "ValidatingAdmissionPolicy" {
		for _, list := range []string{"matchConditions", "variables"} {
			entries, _ := at(object, "spec."+list).([]any)
			for _, e := range entries {
				entry := e.(map[string]any)
				for _, account := range []string{"assay-worker", "assay-controller"} {
					entry["expression"] = strings.ReplaceAll(entry["expression"].(string), " == 'system:serviceaccount:assay-system:"+account+"'",
						".matches('^system:serviceaccount:[^:]+:[a-z0-9.-]*"+account+"[a-z0-9.-]*$')")
				}
				// An exemption must not match accounts of other owners.
				entry["expression"] = strings.Replace(entry["expression"].(string), "variables.hardened && !variables.manager", "variables.hardened", 1)
			}
		}
		if at(object, "metadata.name") == "assay-node-bound-sets" { // the exemption was all that this policy has the variable for
			spec := object["spec"].(map[string]any)
			spec["variables"] = slices.DeleteFunc(spec["variables"].([]any), func(v any) bool { return at(v, "name") == "manager" })
		}
	}
	return object
}

// kustomized builds a directory, and returns the objects by their identity.
func kustomized(t *testing.T, files filesys.FileSystem, dir string) map[string]any {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		got[identity(object)] = comparable(object)
	}
	return got
}

// comparable returns an object without the labels and annotations that only Helm writes; for a CRD, its label and its spec.
func comparable(object map[string]any) map[string]any {
	if object["kind"] == "CustomResourceDefinition" {
		return map[string]any{"part-of": at(object, "metadata.labels.app.kubernetes.io/part-of"), "spec": object["spec"]}
	}
	if labels, ok := at(object, "metadata.labels").(map[string]any); ok {
		delete(labels, "helm.sh/chart")
		delete(labels, "app.kubernetes.io/managed-by")
	}
	return object
}
