// Package registry reads and writes compatibility artifacts in image registries.
//
// A registry is not trusted: it may be any that a user names, and what it serves may come from any client that may push. Sizes, pages and
// redirects are limited, digests are verified, and credentials go to the registry and its realm only. Errors name the host and the status,
// and not what a response contains.
package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/assay-project/assay/rules/imagespec"
)

const (
	// Timeout is the maximum time for one image that callers set.
	Timeout = 10 * time.Second
	// maxManifest is the maximum size of the manifest of an artifact, which has one layer.
	maxManifest = 64 << 10
	// maxPages and maxReferrers limit the list of what refers to an image: signatures, lists of packages and others, 10 for each of 100
	// builds.
	maxPages     = 10
	maxReferrers = 1000
)

// Descriptor identifies content by its digest.
type Descriptor = ocispec.Descriptor

// Options select how a registry is accessed.
type Options struct {
	// Credential returns the credentials for a registry; nil: none are used. See DockerCredentials and StaticCredential.
	Credential auth.CredentialFunc
	// PlainHTTP uses HTTP without TLS.
	PlainHTTP bool
	// Roots are the certificates that are trusted; nil: those of the system.
	Roots *x509.CertPool
	// AllowHosts are hosts that may have an address that is not public, for blobs and tokens. The registry itself may have any.
	AllowHosts []string
	// Agent is the name of the client.
	Agent string

	resolver *net.Resolver // of tests
}

// DockerCredentials returns the credentials of Docker's configuration: of $DOCKER_CONFIG or ~/.docker, and of the credential helpers that
// it names.
func DockerCredentials() (auth.CredentialFunc, error) {
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the configuration of Docker: %w", err)
	}
	return credentials.Credential(store), nil
}

// StaticCredential returns a user's password, or a token if there is no user.
func StaticCredential(user, secret string) auth.CredentialFunc {
	c := auth.Credential{AccessToken: secret}
	if user != "" {
		c = auth.Credential{Username: user, Password: secret}
	}
	return func(context.Context, string) (auth.Credential, error) { return c, nil }
}

// Client accesses one repository of a registry. It makes one request at a time and is not safe for concurrent use.
type Client struct {
	ref   registry.Reference
	repo  *remote.Repository
	guard *guard
}

// New returns a client for the repository of an image, such as registry.example.com/team/app:v1 or …@sha256:…. It makes no request.
func New(image string, opt Options) (*Client, error) {
	ref, err := registry.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("invalid image %q: write the registry and the name, for example registry.example.com/team/app:v1", image)
	}
	g := newGuard(ref.Host(), &opt)
	client := &auth.Client{
		Client: g.client(), Cache: auth.NewSingleContextCache(),
		// guard checks each address, when the connection is made.
		BlockedRealmPrefixes: []netip.Prefix{},
		Credential: func(ctx context.Context, host string) (auth.Credential, error) {
			if opt.Credential == nil || !strings.EqualFold(host, ref.Host()) {
				return auth.EmptyCredential, nil
			}
			return opt.Credential(ctx, host)
		},
	}
	client.SetUserAgent(opt.Agent)
	c := &Client{ref: ref, guard: g}
	c.repo = &remote.Repository{
		Client: client, Reference: ref, PlainHTTP: opt.PlainHTTP, ReferrerListMaxPages: maxPages,
		MaxMetadataBytes: maxBody + 1, // guard reports larger ones
		SkipReferrersGC:  true,        // to delete replaced lists, the user would need a right that push does not need
	}
	return c, nil
}

// Close closes connections that are kept open.
func (c *Client) Close() { c.guard.base.CloseIdleConnections() }

// Image is an image in a registry.
type Image struct {
	// Descriptor is that of the manifest or the index.
	Descriptor Descriptor
	// Index is set if the image is an index.
	Index bool
	// Platforms are the manifests of an index with a platform.
	Platforms []Descriptor
}

// Resolve returns the image that the client was created for. Without tag and digest it is latest. It reads the manifest: the registry can
// say anything about the digest of a tag in a header.
func (c *Client) Resolve(ctx context.Context) (*Image, error) {
	desc, data, err := c.manifest(ctx, c.ref.ReferenceOrDefault())
	if err != nil {
		return nil, c.explain(ctx, "image "+c.ref.String(), err)
	}
	out := &Image{Descriptor: desc}
	switch desc.MediaType {
	case ocispec.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json":
	default:
		return out, nil
	}
	out.Index = true
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("index %s at %s is not valid JSON", desc.Digest, c.guard.registry)
	}
	for _, m := range index.Manifests {
		if p := m.Platform; p != nil && p.OS != "" && p.OS != "unknown" { // attestations have the platform unknown/unknown
			out.Platforms = append(out.Platforms, m)
		}
	}
	return out, nil
}

// manifest reads the manifest of a tag or digest, and verifies the size and the digest that the registry gives.
func (c *Client) manifest(ctx context.Context, reference string) (Descriptor, []byte, error) {
	desc, body, err := c.repo.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return desc, nil, err
	}
	defer func() { _ = body.Close() }()
	if desc.Size > maxBody {
		return desc, nil, &InvalidError{fmt.Sprintf("its manifest has %d bytes: at most %d are allowed", desc.Size, int64(maxBody))}
	}
	data, err := content.ReadAll(body, desc)
	return desc, data, err
}

// fetch reads content of at most max bytes and verifies its size and digest.
func (c *Client) fetch(ctx context.Context, from content.Fetcher, desc Descriptor, max int64) ([]byte, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, &InvalidError{fmt.Sprintf("invalid digest %q", desc.Digest)}
	}
	if desc.Size > max || desc.Size < 0 {
		return nil, &InvalidError{fmt.Sprintf("%d bytes: at most %d are allowed", desc.Size, max)}
	}
	return content.FetchAll(ctx, from, desc)
}

// Artifact is a compatibility artifact in the list of what refers to an image.
type Artifact struct {
	Descriptor Descriptor
	// Created is when it was created, as it says; zero: it does not.
	Created time.Time
}

// Artifacts returns the compatibility artifacts of a manifest or index, the newest first. One without a time is older than those with one;
// of equally old ones, the lowest digest comes first.
func (c *Client) Artifacts(ctx context.Context, subject Descriptor) ([]Artifact, error) {
	var out []Artifact
	all := 0
	err := c.repo.Referrers(ctx, subject, imagespec.ArtifactType, func(list []Descriptor) error {
		if all += len(list); all > maxReferrers {
			return &InvalidError{fmt.Sprintf("more than %d referrers", maxReferrers)}
		}
		for _, d := range list {
			if d.ArtifactType == imagespec.ArtifactType { // a registry that says that it filters may not
				a := Artifact{Descriptor: d}
				a.Created, _ = time.Parse(time.RFC3339, d.Annotations[ocispec.AnnotationCreated])
				out = append(out, a)
			}
		}
		return nil
	})
	if err != nil {
		return nil, c.explain(ctx, "list of referrers of "+string(subject.Digest), err)
	}
	slices.SortFunc(out, func(a, b Artifact) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Descriptor.Digest, b.Descriptor.Digest))
	})
	return slices.CompactFunc(out, func(a, b Artifact) bool { return a.Descriptor.Digest == b.Descriptor.Digest }), nil
}

// InvalidError reports content that is not a valid compatibility artifact.
type InvalidError struct{ Reason string }

// Error implements error.
func (e *InvalidError) Error() string { return e.Reason }

// errOther is the error of Read for an artifact of another image.
var errOther = &InvalidError{"its subject is another image"}

// IsOther reports whether an artifact of another image is in the list of this one. It does not count.
func IsOther(err error) bool { return errors.Is(err, errOther) }

// Read returns the layer of an artifact of a manifest or index.
func (c *Client) Read(ctx context.Context, subject Descriptor, a Artifact) ([]byte, error) {
	at := "artifact " + string(a.Descriptor.Digest)
	if a.Descriptor.MediaType != ocispec.MediaTypeImageManifest {
		return nil, c.explain(ctx, at, &InvalidError{fmt.Sprintf("its media type is %q, not %q", a.Descriptor.MediaType, ocispec.MediaTypeImageManifest)})
	}
	data, err := c.fetch(ctx, c.repo.Manifests(), a.Descriptor, maxManifest)
	if err != nil {
		return nil, c.explain(ctx, at, err)
	}
	layer, err := layerOf(data, subject)
	if err != nil {
		return nil, c.explain(ctx, at, err)
	}
	data, err = c.fetch(ctx, c.repo.Blobs(), layer, imagespec.MaxBytes)
	if err != nil {
		return nil, c.explain(ctx, "the layer of "+at, err)
	}
	return data, nil
}

// layerOf checks the manifest of an artifact and returns its layer.
func layerOf(data []byte, subject Descriptor) (Descriptor, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Descriptor{}, &InvalidError{"its manifest is not valid JSON"}
	}
	switch {
	case m.Subject == nil || m.Subject.Digest != subject.Digest:
		return Descriptor{}, errOther
	case m.MediaType != "" && m.MediaType != ocispec.MediaTypeImageManifest:
		return Descriptor{}, &InvalidError{fmt.Sprintf("its manifest says that its media type is %q", m.MediaType)}
	case m.ArtifactType != imagespec.ArtifactType:
		return Descriptor{}, &InvalidError{fmt.Sprintf("its manifest says that its type is %q, not %q", m.ArtifactType, imagespec.ArtifactType)}
	case len(m.Layers) != 1:
		return Descriptor{}, &InvalidError{fmt.Sprintf("it has %d layers, not one", len(m.Layers))}
	case m.Layers[0].MediaType != imagespec.LayerType:
		return Descriptor{}, &InvalidError{fmt.Sprintf("its layer has the media type %q, not %q", m.Layers[0].MediaType, imagespec.LayerType)}
	}
	return m.Layers[0], nil
}

// Newest returns the newest artifact of a manifest or index, and its layer; nil: it has none. If the newest one is invalid, the older
// ones are not used: they may say something else.
func (c *Client) Newest(ctx context.Context, subject Descriptor) (*Artifact, []byte, error) {
	list, err := c.Artifacts(ctx, subject)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		data, err := c.Read(ctx, subject, list[i])
		if !IsOther(err) {
			return &list[i], data, err
		}
	}
	return nil, nil, nil
}

// Pack returns the manifest of an artifact for a manifest or index, as it is pushed.
func Pack(subject Descriptor, layer []byte, created time.Time) ([]byte, Descriptor, error) {
	config := ocispec.DescriptorEmptyJSON
	config.Data = nil
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: imagespec.ArtifactType, Config: config,
		Layers:      []Descriptor{content.NewDescriptorFromBytes(imagespec.LayerType, layer)},
		Subject:     &Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{ocispec.AnnotationCreated: created.UTC().Format(time.RFC3339Nano)},
	}
	data, err := json.MarshalIndent(m, "", "  ")
	return data, content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data), err
}

// Push attaches a layer to a manifest or index. A registry without the referrers API gets the list of referrers under a tag.
func (c *Client) Push(ctx context.Context, subject Descriptor, layer []byte, created time.Time) (Descriptor, error) {
	manifest, desc, err := Pack(subject, layer, created)
	if err != nil {
		return desc, err
	}
	for _, blob := range []struct {
		desc Descriptor
		data []byte
	}{
		{ocispec.DescriptorEmptyJSON, ocispec.DescriptorEmptyJSON.Data},
		{content.NewDescriptorFromBytes(imagespec.LayerType, layer), layer},
	} {
		if exists, err := c.repo.Blobs().Exists(ctx, blob.desc); err == nil && exists {
			continue
		}
		if err := c.repo.Blobs().Push(ctx, blob.desc, bytes.NewReader(blob.data)); err != nil {
			return desc, c.explain(ctx, "push to "+c.ref.Repository, err)
		}
	}
	if err := c.repo.Manifests().Push(ctx, desc, bytes.NewReader(manifest)); err != nil {
		return desc, c.explain(ctx, "push to "+c.ref.Repository, err)
	}
	return desc, nil
}

// Delete deletes an artifact of a subject, and its entry in the list of referrers. In a registry without the referrers API, the entry is
// deleted first: if the registry then does not allow to delete the artifact, the error says that the image has it no longer.
func (c *Client) Delete(ctx context.Context, subject Descriptor, a Artifact) error {
	if a.Descriptor.Size > maxManifest {
		return &InvalidError{fmt.Sprintf("artifact %s has %d bytes: at most %d are allowed", a.Descriptor.Digest, a.Descriptor.Size, maxManifest)}
	}
	err := c.explain(ctx, "deletion of artifact "+string(a.Descriptor.Digest), c.repo.Manifests().Delete(ctx, a.Descriptor))
	if err == nil {
		return nil
	}
	left, unread := c.Artifacts(ctx, subject)
	if unread == nil && !slices.ContainsFunc(left, func(l Artifact) bool { return l.Descriptor.Digest == a.Descriptor.Digest }) {
		return fmt.Errorf("%w; the image no longer has the artifact, whose manifest stays in the registry", err)
	}
	return err
}

// ParseDigest returns an error for what is not a digest.
func ParseDigest(text string) error {
	if _, err := digest.Parse(text); err != nil {
		return fmt.Errorf("invalid digest %q: write for example sha256:… as assay image show prints it", text)
	}
	return nil
}

// Host returns the host of the registry, with its port if it has one.
func (c *Client) Host() string { return c.guard.registry }

// Repository returns the name of the repository in the registry.
func (c *Client) Repository() string { return c.ref.Repository }
