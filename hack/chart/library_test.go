package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLibraryIDsAreCurrent compares the IDs that the chart accepts with the files of the library.
func TestLibraryIDsAreCurrent(t *testing.T) {
	files, err := filepath.Glob("../../library/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if id, ok := strings.CutSuffix(filepath.Base(file), ".yaml"); ok && !strings.HasSuffix(id, ".test") {
			want = append(want, id)
		}
	}
	slices.Sort(want)
	data, err := os.ReadFile(filepath.Join(chartDir, "files", "library.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(data)); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("files/library.txt differs from the library: run make chart\ngot  %v\nwant %v", got, want)
	}
}

// TestLibraryIsAppliedByAHook renders valid IDs and an invalid one.
func TestLibraryIsAppliedByAHook(t *testing.T) {
	var jobs []string
	for _, object := range objects(t, mustRender(t, set(t, `{library: [nvidia-gpu, coral]}`))) {
		metadata, spec := pod(t, object)
		if spec == nil || metadata.Labels["app.kubernetes.io/component"] != "library" {
			continue
		}
		jobs = append(jobs, identity(object))
		if got, want := strings.Join(spec.Containers[0].Args, " "), "library apply nvidia-gpu coral --owner=assay-system.assay --prune"; got != want {
			t.Errorf("the hook runs %q, want %q", got, want)
		}
		if image := spec.Containers[0].Image; !strings.Contains(image, "/assay-cli:") {
			t.Errorf("the image is %s, want assay-cli", image)
		}
		hook := object["metadata"].(map[string]any)["annotations"].(map[string]any)["helm.sh/hook"]
		if hook != "post-install,post-upgrade" {
			t.Errorf("the hook is %v", hook)
		}
	}
	if want := []string{"Job/assay-system/assay-library"}; !slices.Equal(jobs, want) {
		t.Errorf("there are %v, want %v", jobs, want)
	}
	for values, want := range map[string]string{
		`{library: [coral, nvidia-gpuu]}`: `library: unknown rule "nvidia-gpuu"; valid ids are: amd-alveo, amd-gpu,`,
		`{library: coral}`:                "/library",
		`{library: [7]}`:                  `library: unknown rule "7"`,
	} {
		_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, values)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", values, err, want)
		}
	}
}
