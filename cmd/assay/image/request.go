package image

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/requirements"
)

type requestOptions struct {
	cluster  cluster.Flags
	registry registryFlags
	name     string
	platform string
	tags     []string
	output   string
}

func newRequest() *cobra.Command {
	f := &requestOptions{}
	cmd := &cobra.Command{
		Use:   "request IMAGE",
		Short: "Print a NodeFeatureRequest that nodes meet if the image fits them",
		Long: `Print a NodeFeatureRequest that nodes meet if the image fits them, and the node selector for its pods.

The request is a copy: it does not follow a newer artifact or tag. Weights are not in it. Sets whose rules read vars of other rules, or
with more than 64 alternatives, cannot be a request.

Exit codes: 0 success; 1 there is nothing to require, or the sets cannot be a request; 2 the registry could not be read.`,
		Example: `  assay image request registry.example.com/team/app:v1 -n ml
  assay image request registry.example.com/team/app:v1 -n ml --name app --tags gpu | kubectl apply -f -`,
		Args: oneImage,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.cluster.Register(cmd.Flags())
	f.registry.register(cmd.Flags())
	platformFlag(cmd.Flags(), &f.platform, "the whole image by default")
	cmd.Flags().StringVar(&f.name, "name", "", "name of the request; that of the image with its digest by default")
	cmd.Flags().StringSliceVar(&f.tags, "tags", nil, "use only sets with one of these tags")
	printer.OutputFlag(cmd, &f.output, "yaml", "json")
	return cmd
}

func (f *requestOptions) run(cmd *cobra.Command, ref string) error {
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
	reader, err := newArtifactReader(ctx, c, reviewKnown())
	if err != nil {
		return err
	}
	a, err := reader.on(ctx, p)
	if err != nil {
		return err
	}
	wait.End()
	if a == nil {
		hint := ""
		if reader.image.Index && f.platform == "" {
			hint = " of the index; --platform asks for that of a platform"
		}
		return cli.Found(fmt.Errorf("%s has no compatibility artifact%s: it needs no request", ref, hint))
	}
	sets, err := a.sets(f.tags)
	if err != nil {
		return err
	}
	required, err := imagespec.Requirement(sets)
	if errors.Is(err, imagespec.ErrNoRequirement) {
		return cli.Found(fmt.Errorf("%w: it needs no request", err))
	}
	if err != nil {
		return cli.Found(err)
	}
	request := &assayv1alpha1.NodeFeatureRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: assayv1alpha1.GroupVersion.String(), Kind: "NodeFeatureRequest"},
		ObjectMeta: metav1.ObjectMeta{Namespace: f.cluster.Namespace(), Name: f.name},
	}
	if request.Name == "" {
		request.Name = requestName(request.Namespace, c.Repository(), string(reader.image.Descriptor.Digest))
	}
	request.Spec.Required = required
	label := requirements.LabelOf(request.Namespace, request.Name)
	if label == requirements.ImpossibleLabel {
		return fmt.Errorf("--name: %s", requirements.NameTooLong(request.Namespace, request.Name))
	}
	return f.print(cmd, ref, a, request, label)
}

func (f *requestOptions) print(cmd *cobra.Command, ref string, a *compatibility, request *assayv1alpha1.NodeFeatureRequest, label string) error {
	// The status is not part of what a user applies.
	object := map[string]any{
		"apiVersion": request.APIVersion, "kind": request.Kind, "metadata": map[string]string{"name": request.Name, "namespace": request.Namespace}, "spec": request.Spec,
	}
	w := cmd.OutOrStdout()
	if f.output == "json" {
		return printTrimmed(w, "json", object)
	}
	var text strings.Builder
	if err := printTrimmed(&text, "yaml", object); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `# Nodes that %s fits, by the %s
# (%s).
# Pods with the image use:
#   nodeSelector: {%s: "true"}
# or have the label:
#   %s: %s
%s`, clip.Printable(ref), a.text(), imagespec.Meaning, label, assayv1alpha1.FeatureRequestLabel, request.Name, text.String())
	return err
}

// digestLength is the number of digits of a digest in a name.
const digestLength = 12

// requestName returns a name for a request: the last part of the repository and the start of the digest, as long as a label allows.
func requestName(namespace, repository, digest string) string {
	base := repository[strings.LastIndex(repository, "/")+1:]
	base = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, base), "-")
	_, digits, _ := strings.Cut(digest, ":")
	suffix := "-" + digits[:min(digestLength, len(digits))]
	room := validation.LabelValueMaxLength - len(namespace) - len(".") - len(suffix)
	return base[:max(1, min(len(base), room))] + suffix
}
