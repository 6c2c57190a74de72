package chart

import (
	"os"
	"strings"
	"testing"
)

// TestImages renders the images of the components, by component and container.
func TestImages(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	version := ":" + load(t).Metadata.AppVersion
	for name, test := range map[string]struct {
		values string
		want   map[string]string
	}{
		"Default": {`{}`, map[string]string{
			"worker": "ghcr.io/assay-project/assay-worker" + version, "controller": "ghcr.io/assay-project/assay-manager" + version,
		}},
		"PartOfItsOwn": {`{worker: {image: {repository: registry.example.com/hooks, tag: v2}}}`, map[string]string{
			"worker": "registry.example.com/hooks:v2", "controller": "ghcr.io/assay-project/assay-manager" + version,
		}},
		"TagOfItsOwn": {`{image: {repository: a.example/b/, tag: v1}, webhook: {image: {tag: v2}}}`, map[string]string{
			"webhook": "a.example/b/assay-manager:v2", "controller": "a.example/b/assay-manager:v1",
		}},
		"Digest": {`{image: {tag: v1}, controller: {image: {digest: "` + digest + `"}}}`, map[string]string{
			"controller": "ghcr.io/assay-project/assay-manager@" + digest, "cleanup": "ghcr.io/assay-project/assay-manager@" + digest,
			"webhook": "ghcr.io/assay-project/assay-manager:v1",
		}},
		"ImageOfNFD": {`{image: {repository: registry.k8s.io/nfd/node-feature-discovery, tag: v0.18}, worker: {image: {tag: v2}}}`, map[string]string{
			"worker": "ghcr.io/assay-project/assay-worker:v2", "controller": "ghcr.io/assay-project/assay-manager" + version,
		}},
		"Registry": {`{global: {imageRegistry: "mirror.example:5000/"}, library: [coral], scheduler: {enabled: true}, worker: {image: {repository: team/hooks, tag: v2}}}`, map[string]string{
			"worker": "mirror.example:5000/team/hooks:v2", "controller": "mirror.example:5000/assay-project/assay-manager" + version,
			"library": "mirror.example:5000/assay-project/assay-cli" + version, "scheduler": "mirror.example:5000/kube-scheduler:v1.37.2",
		}},
		"Extender": {`{scheduler: {enabled: true}, extender: {image: {tag: v2}}}`, map[string]string{
			"scheduler/extender": "ghcr.io/assay-project/assay-manager:v2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, object := range objects(t, mustRender(t, set(t, test.values))) {
				metadata, spec := pod(t, object)
				if spec == nil {
					continue
				}
				component := metadata.Labels["app.kubernetes.io/component"]
				got[component] = spec.Containers[0].Image
				for _, c := range spec.Containers {
					got[component+"/"+c.Name] = c.Image
				}
			}
			for component, want := range test.want {
				if got[component] != want {
					t.Errorf("%s: got %s, want %s", component, got[component], want)
				}
			}
		})
	}
	_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, `{worker: {image: {digest: abc}}}`)})
	if err == nil || !strings.Contains(err.Error(), "/worker/image/digest") {
		t.Errorf("got error %v, want one that says where", err)
	}
}

// TestImagesOfAMirror renders every part with the registry of a mirror. docs/install.md lists the images.
func TestImagesOfAMirror(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(page), "## Air-gapped clusters and mirrors")
	listed, _, _ = strings.Cut(listed, "\n## ")
	found := map[string]bool{}
	values := `{global: {imageRegistry: mirror.example.com}, library: [coral], scheduler: {enabled: true}, topology: {enabled: true}}`
	for _, object := range objects(t, mustRender(t, set(t, values))) {
		_, spec := pod(t, object)
		if spec == nil {
			continue
		}
		for _, c := range append(spec.Containers, spec.InitContainers...) {
			name, ok := strings.CutPrefix(c.Image, "mirror.example.com/")
			name, _, _ = strings.Cut(name, ":")
			if found[name] = true; !ok || !strings.Contains(listed, "/"+name+"` |") {
				t.Errorf("%s of %s is not of the mirror, or not in the list of docs/install.md", c.Image, identity(object))
			}
		}
	}
	if rows := strings.Count(listed, "\n| `"); rows != len(found) {
		t.Errorf("docs/install.md lists %d images, and the chart has %d: %v", rows, len(found), found)
	}
}
