package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// parts are the values of the chart that have an image of their own, by the name of the image. The value library has none, and uses the tag.
var parts = []struct {
	image  string
	values []string
}{
	{"assay-worker", []string{"worker", "topology"}},
	{"assay-manager", []string{"controller", "webhook", "extender"}},
}

// checkRepository checks that the images can be pushed to a repository, and that the chart uses them from there.
func checkRepository(repository string) error {
	_, err := name.NewRepository(repository + "/assay-worker")
	if strings.Contains(repository, "://") {
		err = errors.New("it is an address")
	}
	if err != nil {
		return fmt.Errorf("invalid registry %q: use for example registry.example.com/assay: %w", repository, err)
	}
	if strings.HasSuffix(repository, "node-feature-discovery") {
		return fmt.Errorf("invalid registry %q: the chart ignores repositories whose last part is node-feature-discovery; use another one", repository)
	}
	return nil
}

// push pushes an index with its images, and checks that the registry has it. Credentials are those of docker login.
func push(reference string, index v1.ImageIndex, plainHTTP bool) error {
	var how []name.Option
	if plainHTTP {
		how = append(how, name.Insecure)
	}
	ref, err := name.ParseReference(reference, how...)
	if err != nil {
		return err
	}
	credentials := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if err := remote.WriteIndex(ref, index, credentials); err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	want, err := index.Digest()
	if err != nil {
		return err
	}
	stored, err := remote.Head(ref, credentials)
	if err != nil {
		return fmt.Errorf("read %s after the push: %w", reference, err)
	}
	if stored.Digest != want {
		return fmt.Errorf("%s is %s after the push of %s: something else was pushed to the same tag", reference, stored.Digest, want)
	}
	return nil
}

// installCommand returns the command that installs the pushed images.
func (o options) installCommand(digests map[string]v1.Hash) string {
	lines := []string{
		"helm install assay charts/assay --namespace assay-system --create-namespace --wait",
		"--set image.repository=" + o.repository + ",image.tag=" + tag(o.version),
	}
	for _, part := range parts {
		var values []string
		for _, value := range part.values {
			values = append(values, value+".image.digest="+digests[part.image].String())
		}
		lines = append(lines, "--set "+strings.Join(values, ","))
	}
	return strings.Join(lines, " \\\n  ")
}
