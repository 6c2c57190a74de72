// Package image has the verbs image and compat: they check, show, write and remove the compatibility artifacts of images.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/review"
)

// NewCommand returns assay image.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Check on which nodes an image runs, by the compatibility artifact in its registry",
		Long: `Check on which nodes an image runs, by the compatibility artifact in its registry.

The artifact has the format of Node Feature Discovery: sets of rules. A set is met if all of its rules match, and the image fits a node
if one set is met. The highest weight ranks first. A rule sees the vars of earlier rules of its set, and no outputs of the rules of the
cluster.

Credentials are those of Docker's configuration (docker login) and of its credential helpers.`,
	}
	cmd.AddCommand(newCheck(), newShow(), newLint(), newPush(), newRemove(), newRequest())
	return cmd
}

// registryFlags select how the registry of an image is accessed.
type registryFlags struct {
	plainHTTP  bool
	caFile     string
	allowHosts []string
	timeout    time.Duration
}

func (f *registryFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.plainHTTP, "plain-http", false, "access the registry without TLS")
	flags.StringVar(&f.caFile, "ca-file", "", "file with certificates to trust in addition to those of the system")
	flags.StringSliceVar(&f.allowHosts, "allow-host", nil,
		"host with a private address from which the registry may serve blobs and tokens; the registry itself may have any address")
	flags.DurationVar(&f.timeout, "timeout", registry.Timeout, "maximum time for all requests to the registry")
}

// open returns a client for the registry of an image, and a context that limits its time. A nil credential means Docker's configuration.
func (f *registryFlags) open(ctx context.Context, image string, opt registry.Options) (*registry.Client, context.Context, context.CancelFunc, error) {
	if opt.Credential == nil {
		var err error
		if opt.Credential, err = registry.DockerCredentials(); err != nil {
			return nil, nil, nil, err
		}
	}
	opt.PlainHTTP, opt.AllowHosts, opt.Agent = f.plainHTTP, f.allowHosts, "assay/"+build.Version()
	if f.caFile != "" {
		pem, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, nil, nil, err
		}
		if opt.Roots, err = registry.SystemRoots(pem); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", f.caFile, err)
		}
	}
	c, err := registry.New(image, opt)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	return c, ctx, func() { cancel(); c.Close() }, nil
}

// platformFlag adds --platform.
func platformFlag(flags *pflag.FlagSet, to *string, use string) {
	flags.StringVar(to, "platform", "", "platform of the image, OS/ARCHITECTURE[/VARIANT][:OSVERSION], such as linux/arm64; "+use)
}

// platform is a platform of an image. Empty fields match all.
type platform struct{ os, architecture, variant, version string }

func parsePlatform(text string) (p platform, err error) {
	if text == "" {
		return p, nil
	}
	name, version, _ := strings.Cut(text, ":")
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || len(parts) > 3 {
			return p, fmt.Errorf("invalid platform %q: use for example linux/amd64 or linux/arm/v7", text)
		}
	}
	parts = append(parts, "", "")
	return platform{parts[0], parts[1], parts[2], version}, nil
}

// String returns the platform as --platform accepts it.
func (p platform) String() string {
	out := strings.TrimRight(strings.Join([]string{p.os, p.architecture, p.variant}, "/"), "/")
	if p.version != "" {
		out += ":" + p.version
	}
	return out
}

// platformOf returns the platform of a manifest of an index.
func platformOf(d registry.Descriptor) platform {
	return platform{d.Platform.OS, d.Platform.Architecture, d.Platform.Variant, d.Platform.OSVersion}
}

func (p platform) accepts(other platform) bool {
	match := func(want, have string) bool { return want == "" || want == have }
	return match(p.os, other.os) && match(p.architecture, other.architecture) && match(p.variant, other.variant) && match(p.version, other.version)
}

// manifestOf returns the first manifest of an index for a platform. It returns false if there is none.
func manifestOf(image *registry.Image, p platform) (registry.Descriptor, bool) {
	for _, d := range image.Platforms {
		if p.accepts(platformOf(d)) {
			return d, true
		}
	}
	return registry.Descriptor{}, false
}

// noManifest is the error for a platform that an index does not have.
func noManifest(image *registry.Image, p platform) error {
	var have []string
	for _, d := range image.Platforms {
		have = append(have, platformOf(d).String())
	}
	if len(have) == 0 {
		return fmt.Errorf("the image has no manifest for %s: its index is empty", p)
	}
	return fmt.Errorf("the image has no manifest for %s; it has %s", p, strings.Join(have, ", "))
}

// compatibility is the artifact that counts for an image on a platform.
type compatibility struct {
	Digest  string    `json:"digest"`
	Subject string    `json:"subject"`
	Of      string    `json:"of"` // index, the platform, or manifest
	Created time.Time `json:"created,omitzero"`

	document *imagespec.Document
}

// text describes the artifact in one line.
func (a *compatibility) text() string {
	out := fmt.Sprintf("artifact %s of the %s", shortDigest(a.Digest), a.level())
	if !a.Created.IsZero() {
		out += ", created " + a.Created.UTC().Format(time.RFC3339)
	}
	return out + ": " + clip.Count(len(a.document.Spec.Compatibilities), "set")
}

func (a *compatibility) level() string {
	if a.Of == "index" || a.Of == "manifest" {
		return a.Of
	}
	return "manifest for " + a.Of
}

// shortDigest returns a digest with 12 digits, as Docker shows it.
func shortDigest(text string) string {
	algorithm, digits, _ := strings.Cut(text, ":")
	return algorithm + ":" + digits[:min(len(digits), 12)]
}

// artifactReader reads the artifacts of one image, each once.
type artifactReader struct {
	client *registry.Client
	image  *registry.Image
	known  review.Known
	read   map[string]*compatibility // by the digest of the subject; nil: it has none
}

func newArtifactReader(ctx context.Context, c *registry.Client, known review.Known) (*artifactReader, error) {
	image, err := c.Resolve(ctx)
	return &artifactReader{client: c, image: image, known: known, read: map[string]*compatibility{}}, err
}

// on returns the artifact that counts on a platform: that of its manifest, else that of the index. It returns nil if there is none.
func (r *artifactReader) on(ctx context.Context, p platform) (*compatibility, error) {
	if !r.image.Index {
		return r.of(ctx, r.image.Descriptor, "manifest")
	}
	if p != (platform{}) {
		d, ok := manifestOf(r.image, p)
		if !ok {
			return nil, noManifest(r.image, p)
		}
		if a, err := r.of(ctx, d, platformOf(d).String()); a != nil || err != nil {
			return a, err
		}
	}
	return r.of(ctx, r.image.Descriptor, "index")
}

// of returns the newest artifact of a manifest or index, or nil.
func (r *artifactReader) of(ctx context.Context, subject registry.Descriptor, level string) (*compatibility, error) {
	key := string(subject.Digest)
	if a, ok := r.read[key]; ok {
		return a, nil
	}
	found, data, err := r.client.Newest(ctx, subject)
	if err != nil {
		return nil, err
	}
	var a *compatibility
	if found != nil {
		a = &compatibility{Digest: string(found.Descriptor.Digest), Subject: key, Of: level, Created: found.Created}
		a.document = imagespec.Parse("artifact "+a.Digest, data, r.known)
	}
	r.read[key] = a
	return a, nil
}

// trimmed returns a value as the types of JSON, without the empty fields that the types of NFD write: null is an error in rules.
func trimmed(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	err = json.Unmarshal(data, &out)
	trim(out)
	return out, err
}

// printTrimmed prints a value as printer.Object does, without empty fields.
func printTrimmed(w io.Writer, format string, v any) error {
	short, err := trimmed(v)
	if err != nil {
		return err
	}
	return printer.Object(w, format, short)
}

func trim(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value == nil || key == "varsTemplate" && value == "" {
				delete(v, key)
			}
			trim(value)
		}
	case []any:
		for _, e := range v {
			trim(e)
		}
	}
}

// oneImage accepts exactly one argument, an image.
func oneImage(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("write one image, for example registry.example.com/team/app:v1")
	}
	return nil
}
