package main

import (
	"io"
	"log"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestPushedImagesCanBePulledByTheCommand: the chart's default tag is that of a release, and no image had it: pods stayed at ErrImagePull.
func TestPushedImagesCanBePulledByTheCommand(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	_, o := buildHello(t)
	o.repository, o.version = strings.TrimPrefix(server.URL, "http://")+"/team/assay", "v1.2.3-4-gabc+dirty"
	o.push, o.created = true, time.Unix(1700000000, 0).UTC()
	digests := map[string]v1.Hash{}
	for _, image := range []string{"assay-worker", "assay-manager", "assay-cli"} {
		digest, err := o.build(component{Name: image, Package: "."})
		if err != nil {
			t.Fatal(err)
		}
		digests[image] = digest
	}
	command := o.installCommand(digests)
	set := regexp.MustCompile(`image\.repository=([^, ]+),image\.tag=(\S+)`).FindStringSubmatch(command)
	if set == nil {
		t.Fatalf("no repository and tag in %s", command)
	}
	var references []string
	for _, image := range []string{"assay-worker", "assay-manager", "assay-cli"} {
		references = append(references, set[1]+"/"+image+":"+set[2])
	}
	for _, m := range regexp.MustCompile(`(\w+)\.image\.digest=(sha256:[0-9a-f]{64})`).FindAllStringSubmatch(command, -1) {
		image := "assay-manager"
		if m[1] == "worker" || m[1] == "topology" {
			image = "assay-worker"
		}
		references = append(references, set[1]+"/"+image+"@"+m[2])
	}
	if len(references) != 3+5 {
		t.Errorf("%d references in %s, want three tags and the digests of five parts", len(references), command)
	}
	for _, reference := range references {
		ref, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		for _, platform := range []v1.Platform{amd64, arm64} {
			image, err := remote.Image(ref, remote.WithPlatform(platform))
			if err != nil {
				t.Fatalf("%s for %s: %v", reference, platform, err)
			}
			if config, err := image.ConfigFile(); err != nil || config.Architecture != platform.Architecture {
				t.Errorf("%s for %s: %v, %v", reference, platform, config, err)
			}
		}
	}
}

func TestInvalidRegistriesAreRejected(t *testing.T) {
	for repository, want := range map[string]string{
		"https://registry.example.com/x":                "use for example registry.example.com/assay",
		"registry.example.com/Team":                     "use for example registry.example.com/assay",
		"registry.example.com/x/node-feature-discovery": "the chart ignores repositories",
	} {
		if err := run([]string{"-push", "-repository", repository, "-out", t.TempDir()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", repository, err, want)
		}
	}
}
