package image

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/report"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

type showOptions struct {
	registry registryFlags
	platform string
	output   string
}

func newShow() *cobra.Command {
	f := &showOptions{}
	cmd := &cobra.Command{
		Use:   "show IMAGE",
		Short: "List the compatibility artifacts of an image, and show the sets and rules of those that count",
		Long: `List the compatibility artifacts of an image, and show the sets and rules of those that count.

The newest artifact of an index or of a manifest counts; the artifact of a node's platform comes before that of the index. The rules are
checked as by assay image lint.

Exit codes: 0 success, with or without an artifact; 1 an artifact that counts is invalid; 2 the registry could not be read.`,
		Example: `  assay image show registry.example.com/team/app:v1
  assay image show registry.example.com/team/app:v1 --platform linux/arm64 -o yaml`,
		Args: oneImage,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.registry.register(cmd.Flags())
	platformFlag(cmd.Flags(), &f.platform, "all of an index by default")
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

// shownArtifact is the JSON of an artifact.
type shownArtifact struct {
	Digest  string    `json:"digest"`
	Of      string    `json:"of"`
	Subject string    `json:"subject"`
	Created time.Time `json:"created,omitzero"`
	// Counts is set for the newest artifact of its index or manifest, whose content is shown.
	Counts   bool            `json:"counts"`
	Spec     *imagespec.Spec `json:"spec,omitempty"`
	Findings []shownFinding  `json:"findings,omitempty"`

	document *imagespec.Document
}

// shownFinding is the JSON of a finding.
type shownFinding struct {
	Line     int    `json:"line"`
	Severity string `json:"severity"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

// content is the JSON of an image with its artifacts.
type content struct {
	Image     string          `json:"image"`
	Digest    string          `json:"digest"`
	Platforms []string        `json:"platforms,omitempty"`
	Meaning   string          `json:"meaning"`
	Artifacts []shownArtifact `json:"artifacts"`
}

func (f *showOptions) run(cmd *cobra.Command, ref string) error {
	p, err := parsePlatform(f.platform)
	if err != nil {
		return err
	}
	c, ctx, cancel, err := f.registry.open(cmd.Context(), ref, registry.Options{})
	if err != nil {
		return err
	}
	defer cancel()
	wait := printer.NewProgress(cmd)
	defer wait.End()
	wait.Step("Reading %s from %s…", ref, c.Host())
	image, err := c.Resolve(ctx)
	if err != nil {
		return err
	}
	out := &content{Image: ref, Digest: string(image.Descriptor.Digest), Meaning: imagespec.Meaning, Artifacts: []shownArtifact{}}
	for _, d := range image.Platforms {
		out.Platforms = append(out.Platforms, platformOf(d).String())
	}
	err = eachArtifact(ctx, c, image, p, func(s subject, a registry.Artifact, newest bool) error {
		shown := shownArtifact{Digest: string(a.Descriptor.Digest), Of: s.level, Subject: string(s.desc.Digest), Created: a.Created, Counts: newest}
		if newest {
			data, err := c.Read(ctx, s.desc, a)
			if err != nil {
				return err
			}
			shown.document = imagespec.Parse("artifact "+shortDigest(shown.Digest), data, reviewKnown())
			shown.Spec = &shown.document.Spec
			for _, p := range shown.document.Problems {
				shown.Findings = append(shown.Findings, shownFinding{p.Line, string(p.Severity), p.Path, p.Message})
			}
		}
		out.Artifacts = append(out.Artifacts, shown)
		return nil
	})
	if err != nil {
		return err
	}
	wait.End()
	if f.output == "text" {
		err = out.print(cmd.OutOrStdout())
	} else {
		err = printTrimmed(cmd.OutOrStdout(), f.output, out)
	}
	if err != nil {
		return err
	}
	for i := range out.Artifacts {
		if d := out.Artifacts[i].document; d != nil && d.Err() != nil {
			return cli.ErrFound
		}
	}
	return nil
}

// reviewKnown returns what the review of an image's rules depends on, without a cluster.
func reviewKnown() review.Known {
	return review.Known{Rules: world.UnknownInstallation().Rules(), IDs: &ids.Lazy{}}
}

// subject is what artifacts refer to: the index of an image, or a manifest.
type subject struct {
	desc  registry.Descriptor
	level string // index, manifest, or the platform of the manifest
}

// subjects returns the index of an image and its manifests for a platform.
func subjects(image *registry.Image, p platform) ([]subject, error) {
	if !image.Index {
		return []subject{{image.Descriptor, "manifest"}}, nil
	}
	if _, ok := manifestOf(image, p); !ok && p != (platform{}) {
		return nil, noManifest(image, p)
	}
	out := []subject{{image.Descriptor, "index"}}
	for _, d := range image.Platforms {
		if p.accepts(platformOf(d)) {
			out = append(out, subject{d, platformOf(d).String()})
		}
	}
	return out, nil
}

// eachArtifact calls f for the artifacts of an image, the newest of each subject first. Those that refer to another image do not count.
func eachArtifact(ctx context.Context, c *registry.Client, image *registry.Image, p platform, f func(s subject, a registry.Artifact, newest bool) error) error {
	list, err := subjects(image, p)
	if err != nil {
		return err
	}
	for _, s := range list {
		artifacts, err := c.Artifacts(ctx, s.desc)
		if err != nil {
			return err
		}
		newest := true
		for _, a := range artifacts {
			switch err := f(s, a, newest); {
			case registry.IsOther(err):
				continue
			case err != nil:
				return err
			}
			newest = false
		}
	}
	return nil
}

func (o *content) print(w io.Writer) error {
	s := printer.StyleOf(w)
	fmt.Fprintf(w, "%s is %s\n", clip.Printable(o.Image), o.Digest)
	if len(o.Platforms) > 0 {
		fmt.Fprintf(w, "It is an index of %s.\n", clip.Printable(strings.Join(o.Platforms, ", ")))
	}
	if len(o.Artifacts) == 0 {
		fmt.Fprintln(w, "The image has no compatibility artifact: it fits every node.")
		return nil
	}
	fmt.Fprintln(w)
	t := &printer.Table{}
	t.Add("ARTIFACT", "OF", "CREATED", "COUNTS")
	for i := range o.Artifacts {
		a := &o.Artifacts[i]
		created, counts := "unknown", "no: there is a newer one"
		if !a.Created.IsZero() {
			created = fmt.Sprintf("%s (%s ago)", a.Created.UTC().Format(time.RFC3339), duration.HumanDuration(time.Since(a.Created)))
		}
		if a.Counts {
			counts = "yes"
		}
		t.Add(a.Digest, a.Of, created, counts)
	}
	t.Print(w, "")
	for i := range o.Artifacts {
		if a := &o.Artifacts[i]; a.Counts {
			fmt.Fprintf(w, "\n%s of the %s: %s.\n", s.Bold("Artifact "+shortDigest(a.Digest)), a.Of, imagespec.Meaning)
			if err := a.print(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// print prints the sets and rules of an artifact, and its findings.
func (a *shownArtifact) print(w io.Writer) error {
	for i, c := range a.Spec.Compatibilities {
		title := &imagespec.Set{Compatibility: c, Index: i}
		fmt.Fprintf(w, "\n%s, weight %d\n", clip.Printable(title.Title()), c.Weight)
		for _, r := range c.Rules {
			short, err := trimmed(r)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(short)
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			for j, line := range lines {
				indent := "    "
				if j == 0 {
					indent = "  - "
				}
				fmt.Fprintln(w, indent+clip.Printable(line))
			}
		}
	}
	if len(a.document.Problems) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range a.document.Problems {
		printer.Finding(w, printer.StyleOf(w), a.document.File, report.Finding{File: a.document.File.Name, Problem: p}, true)
	}
	return nil
}

// printProblems prints the findings in a file, and returns whether there are errors.
func printProblems(w io.Writer, d *imagespec.Document) bool {
	for _, p := range d.Problems {
		printer.Finding(w, printer.StyleOf(w), d.File, report.Finding{File: d.File.Name, Problem: p}, true)
	}
	return d.Err() != nil
}

// findingsOf returns the findings of a document.
func findingsOf(d *imagespec.Document) []report.Finding {
	out := make([]report.Finding, len(d.Problems))
	for i, p := range d.Problems {
		out[i] = report.Finding{File: d.File.Name, Problem: p}
	}
	return out
}

// onlyErrors returns the findings without warnings.
func onlyErrors(list []report.Finding) (out []report.Finding) {
	for _, f := range list {
		if f.Severity == manifest.Error {
			out = append(out, f)
		}
	}
	return out
}
