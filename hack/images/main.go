// Command images builds Assay's container images, reproducibly and without Docker, and can push them to a registry.
//
// An image is a static Go program on an empty base with certificate authorities and one unprivileged user. It is written as an OCI
// image layout in a tar file (image-spec, image-layout.md), which `ctr images import`, `skopeo copy oci-archive:` and `crane push`
// read. An SBOM per platform is written next to it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// component is an image and its program.
type component struct {
	Name    string // name of the image and the program
	Package string // package of the program, relative to the root of the project
	About   string
}

// components lists Assay's images.
var components = []component{
	{Name: "assay-worker", Package: "./cmd/assay-worker", About: "Discovers the features of a node and publishes them"},
	{Name: "assay-manager", Package: "./cmd/assay-manager", About: "Controller, admission webhook and scheduler extender of Assay"},
	{Name: "assay-cli", Package: "./cmd/assay", About: "Command line of Assay"},
}

// options are the command line options.
type options struct {
	root, out, repository string
	version, commit       string
	ldflags               string
	platforms             []v1.Platform
	created               time.Time
	fast                  bool
	push, plainHTTP       bool
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("images", flag.ExitOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: images [flags] [NAME...]\n       images [flags] pack REFERENCE PROGRAM\n       images [flags] sbom NAME PROGRAM\n\nflags:")
		fs.PrintDefaults()
	}
	opt := options{}
	fs.StringVar(&opt.root, "root", ".", "root `directory` of the project")
	fs.StringVar(&opt.out, "out", "dist", "`directory` for the archives")
	fs.StringVar(&opt.repository, "repository", "ghcr.io/assay-project", "`name` before that of each image")
	fs.StringVar(&opt.version, "version", "devel", "version and tag of the images")
	fs.StringVar(&opt.commit, "commit", "", "commit that they are built from")
	fs.StringVar(&opt.ldflags, "ldflags", "-s -w", "flags for the linker")
	fs.BoolVar(&opt.push, "push", false, "push all images to the repository, and print the command that installs them")
	fs.BoolVar(&opt.plainHTTP, "plain-http", false, "push without TLS; loopback addresses never need it")
	fs.BoolVar(&opt.fast, "fast", false, "compress quickly rather than well, for images that go nowhere")
	platforms := fs.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if opt.platforms, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	if opt.created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	if opt.push {
		opt.repository = strings.TrimRight(opt.repository, "/")
		if err := checkRepository(opt.repository); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(opt.out, 0o755); err != nil {
		return err
	}
	switch fs.Arg(0) {
	case "pack":
		if fs.NArg() != 3 {
			return fmt.Errorf("pack needs a reference and the path of a static program")
		}
		return opt.pack(fs.Arg(1), fs.Arg(2))
	case "sbom":
		if fs.NArg() != 3 {
			return fmt.Errorf("sbom needs a name and the path of a program")
		}
		return writeSBOM(filepath.Join(opt.out, fs.Arg(1)+".spdx.json"), component{Name: fs.Arg(1)}, opt, fs.Arg(2))
	}
	chosen, err := choose(fs.Args())
	if err != nil {
		return err
	}
	return opt.all(chosen)
}

// all builds the images, pushes them if that is wanted, and prints the command that installs what was pushed.
func (o options) all(chosen []component) error {
	digests := map[string]v1.Hash{}
	for _, c := range chosen {
		digest, err := o.build(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		digests[c.Name] = digest
	}
	if o.push {
		fmt.Printf("\nThe images are pushed. To install them:\n\n%s\n", o.installCommand(digests))
	}
	return nil
}

// build compiles a component for every platform and writes its image and SBOMs. It returns the digest of the image.
func (o options) build(c component) (digest v1.Hash, err error) {
	dir, err := os.MkdirTemp("", "assay-images-")
	if err != nil {
		return digest, err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	variants := make([]variant, 0, len(o.platforms))
	for _, platform := range o.platforms {
		v := variant{Platform: platform, Path: filepath.Join(dir, c.Name+"-"+platform.Architecture)}
		if err := compile(o.root, v.Path, o.ldflags, platform, c.Package); err != nil {
			return digest, err
		}
		sbom := filepath.Join(o.out, fmt.Sprintf("%s-%s-%s.spdx.json", c.Name, platform.OS, platform.Architecture))
		if err := writeSBOM(sbom, c, o, v.Path); err != nil {
			return digest, err
		}
		variants = append(variants, v)
	}
	return o.write(spec{
		Reference: o.repository + "/" + c.Name + ":" + tag(o.version), Program: c.Name, Created: o.created, Fast: o.fast,
		Annotations: map[string]string{
			"org.opencontainers.image.title":       c.Name,
			"org.opencontainers.image.description": c.About,
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.source":      "https://github.com/assay-project/assay",
			"org.opencontainers.image.version":     o.version,
			"org.opencontainers.image.revision":    o.commit,
		},
	}, variants, c.Name)
}

// pack creates an image of an existing program, for tests with Kubernetes' programs.
func (o options) pack(reference, program string) error {
	name := reference[strings.LastIndexByte(reference, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	_, err := o.write(spec{Reference: reference, Program: name, Created: o.created, Fast: o.fast}, []variant{{Platform: o.platforms[0], Path: program}}, name)
	return err
}

// write writes the archive of an image, pushes the image if that is wanted, and prints a summary.
func (o options) write(s spec, variants []variant, file string) (digest v1.Hash, err error) {
	index, err := assemble(s, variants)
	if err != nil {
		return digest, err
	}
	path := filepath.Join(o.out, file+".oci.tar")
	if err := archive(path, index, s.Reference); err != nil {
		return digest, err
	}
	if digest, err = index.Digest(); err != nil {
		return digest, err
	}
	sizes, err := sizes(index)
	if err != nil {
		return digest, err
	}
	if o.push {
		if err := push(s.Reference, index, o.plainHTTP); err != nil {
			return digest, err
		}
	}
	fmt.Printf("%s@%s\n  %s: %s\n", s.Reference, digest, path, sizes)
	return digest, nil
}

// choose returns the named components, or all.
func choose(names []string) ([]component, error) {
	if len(names) == 0 {
		return components, nil
	}
	var chosen []component
	for _, name := range names {
		found := false
		for _, c := range components {
			if c.Name == name {
				chosen, found = append(chosen, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no image %q; there are assay-worker, assay-manager and assay-cli", name)
		}
	}
	return chosen, nil
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS != "linux" || p.Architecture == "" {
			return nil, fmt.Errorf("platform %q: write linux/ARCHITECTURE", text)
		}
		platforms = append(platforms, *p)
	}
	return platforms, nil
}

// sourceDate returns the time of all files in an image: SOURCE_DATE_EPOCH (reproducible-builds.org), or else 1970.
func sourceDate(text string) (time.Time, error) {
	if text == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// tag converts a version to a valid tag, which cannot contain "+".
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }
