package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules/imagespec"
)

type pushOptions struct {
	registry registryFlags
	platform string
	dryRun   bool
}

func newPush() *cobra.Command {
	f := &pushOptions{}
	cmd := &cobra.Command{
		Use:   "push IMAGE FILE|-",
		Short: "Attach a file with the compatibility of an image to the image in its registry",
		Long: `Attach a file with the compatibility of an image to the image in its registry.

The file is checked first, as by assay image lint. The artifact refers to the index of an image for several platforms, or with --platform
to one of its manifests. Older artifacts stay, and the new one counts; assay image rm deletes artifacts. The image itself is not changed.

Exit codes: 0 success; 1 the file has errors; 2 the registry rejected a request.`,
		Example: `  assay image push registry.example.com/team/app:v1 compat.yaml
  assay image push registry.example.com/team/app:v1 compat.yaml --platform linux/arm64 --dry-run`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1]) },
	}
	f.registry.register(cmd.Flags())
	platformFlag(cmd.Flags(), &f.platform, "the whole image by default")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the manifest of the artifact instead of pushing it")
	return cmd
}

func (f *pushOptions) run(cmd *cobra.Command, ref, file string) error {
	p, err := parsePlatform(f.platform)
	if err != nil {
		return err
	}
	data, err := input.Read(file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if printProblems(cmd.ErrOrStderr(), imagespec.Parse(input.Name(file), data, reviewKnown())) {
		return cli.Found(fmt.Errorf("%s has errors; nothing was pushed", input.Name(file)))
	}
	c, ctx, cancel, err := f.registry.open(cmd.Context(), ref, registry.Options{})
	if err != nil {
		return err
	}
	defer cancel()
	wait := printer.NewProgress(cmd)
	defer wait.End()
	wait.Step("Pushing to %s…", c.Host())
	image, err := c.Resolve(ctx)
	if err != nil {
		return err
	}
	list, err := subjects(image, p)
	if err != nil {
		return err
	}
	to := list[0]
	if image.Index && f.platform != "" {
		to = list[1]
	}
	now := time.Now()
	if f.dryRun {
		manifest, _, err := registry.Pack(to.desc, data, now)
		if err != nil {
			return err
		}
		wait.End()
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", manifest)
		return err
	}
	desc, err := c.Push(ctx, to.desc, data, now)
	if err != nil {
		return err
	}
	all, err := c.Artifacts(ctx, to.desc)
	if err != nil {
		return err
	}
	wait.End()
	fmt.Fprintf(cmd.OutOrStdout(), "pushed artifact %s of the %s %s\n", desc.Digest, to.name(), to.desc.Digest)
	if len(all) > 0 && all[0].Descriptor.Digest != desc.Digest {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: artifact %s says that it is newer, so it counts; delete it with assay image rm\n", all[0].Descriptor.Digest)
	}
	return nil
}

// name returns what the subject is, for messages.
func (s subject) name() string {
	if s.level == "index" || s.level == "manifest" {
		return s.level
	}
	return "manifest for " + s.level
}

type removeOptions struct {
	registry registryFlags
	platform string
	all      bool
}

func newRemove() *cobra.Command {
	f := &removeOptions{}
	cmd := &cobra.Command{
		Use:   "rm IMAGE [DIGEST]",
		Short: "Delete a compatibility artifact of an image",
		Long: `Delete a compatibility artifact of an image, and its entry in the list of what refers to the image.

Without DIGEST, the image must have exactly one artifact, unless --all deletes all of them. The registry must allow to delete; the image
itself is not changed. Artifacts of other types, such as signatures, are never deleted.`,
		Example: `  assay image rm registry.example.com/team/app:v1
  assay image rm registry.example.com/team/app:v1 --all`,
		Args: cobra.RangeArgs(1, 2),
		RunE: f.run,
	}
	f.registry.register(cmd.Flags())
	platformFlag(cmd.Flags(), &f.platform, "all of an index by default")
	cmd.Flags().BoolVar(&f.all, "all", false, "delete all compatibility artifacts of the image")
	return cmd
}

func (f *removeOptions) run(cmd *cobra.Command, args []string) error {
	p, err := parsePlatform(f.platform)
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if err := registry.ParseDigest(args[1]); err != nil {
			return err
		}
		if f.all {
			return fmt.Errorf("--all deletes all artifacts: leave out --all or the digest")
		}
	}
	c, ctx, cancel, err := f.registry.open(cmd.Context(), args[0], registry.Options{})
	if err != nil {
		return err
	}
	defer cancel()
	wait := printer.NewProgress(cmd)
	defer wait.End()
	wait.Step("Reading %s from %s…", args[0], c.Host())
	image, err := c.Resolve(ctx)
	if err != nil {
		return err
	}
	type artifact struct {
		of registry.Descriptor
		registry.Artifact
	}
	var chosen []artifact
	var digests []string
	if err := eachArtifact(ctx, c, image, p, func(s subject, a registry.Artifact, _ bool) error {
		digests = append(digests, string(a.Descriptor.Digest))
		if len(args) == 1 || string(a.Descriptor.Digest) == args[1] {
			chosen = append(chosen, artifact{s.desc, a})
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case len(digests) == 0:
		return cli.Found(fmt.Errorf("%s has no compatibility artifact", args[0]))
	case len(chosen) == 0:
		return cli.Found(fmt.Errorf("%s has no compatibility artifact %s; it has %s", args[0], args[1], strings.Join(digests, ", ")))
	case len(chosen) > 1 && !f.all:
		return fmt.Errorf("%s has %d compatibility artifacts: choose one, or pass --all\n  %s", args[0], len(chosen), strings.Join(digests, "\n  "))
	}
	for _, a := range chosen {
		wait.Step("Deleting %s…", a.Descriptor.Digest)
		if err := c.Delete(ctx, a.of, a.Artifact); err != nil {
			return err
		}
		wait.End()
		fmt.Fprintf(cmd.OutOrStdout(), "deleted artifact %s\n", a.Descriptor.Digest)
	}
	return nil
}
