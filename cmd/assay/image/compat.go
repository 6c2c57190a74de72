package image

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/imagecompat/registry"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/imagespec"
)

// NewCompatCommand returns the commands of nfd compat.
func NewCompatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compat",
		Short: "Check images with the flags of nfd compat",
	}
	cmd.AddCommand(newValidateNode())
	return cmd
}

type validateOptions struct {
	registry      registryFlags
	settings      world.SettingFlags
	image         string
	tags          []string
	platform      string
	user          string
	passwordStdin bool
	tokenStdin    bool
	json          bool
	exitZero      bool
}

func newValidateNode() *cobra.Command {
	f := &validateOptions{}
	cmd := &cobra.Command{
		Use:   "validate-node --image IMAGE",
		Short: "Check an image on this machine, with the flags and the JSON of nfd compat validate-node",
		Long: `Check an image on this machine, with the flags and the JSON of nfd compat validate-node.

It shows the result of each expression. A set is met if all of its rules match; the image fits the machine if one set is met. Without
--registry-username and --registry-token-stdin, credentials are those of Docker's configuration.

Exit codes: 0 the image fits, or has no compatibility artifact; 1 it does not fit (with --exit-zero: 0, as with nfd); 2 the registry could
not be read, or the artifact is invalid.`,
		Example: `  assay compat validate-node --image registry.example.com/team/app:v1
  assay compat validate-node --image registry.example.com/team/app:v1 --tags gpu --output-json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.registry.register(cmd.Flags())
	f.settings.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&f.image, "image", "", "image to check")
	cmd.Flags().StringSliceVar(&f.tags, "tags", nil, "consider only sets with one of these tags")
	platformFlag(cmd.Flags(), &f.platform, "that of this machine by default")
	cmd.Flags().StringVar(&f.user, "registry-username", "", "user of the registry")
	cmd.Flags().BoolVar(&f.passwordStdin, "registry-password-stdin", false, "read the password of the user from standard input")
	cmd.Flags().BoolVar(&f.tokenStdin, "registry-token-stdin", false, "read a token for the registry from standard input")
	cmd.Flags().BoolVar(&f.json, "output-json", false, "print JSON")
	cmd.Flags().BoolVar(&f.exitZero, "exit-zero", false, "exit with 0 if the image does not fit")
	_ = cmd.MarkFlagRequired("image")
	cmd.MarkFlagsRequiredTogether("registry-username", "registry-password-stdin")
	cmd.MarkFlagsMutuallyExclusive("registry-password-stdin", "registry-token-stdin")
	return cmd
}

// nfdSet is the result of a set in the JSON of nfd compat validate-node.
type nfdSet struct {
	Rules       []nfdRule `json:"rules"`
	Description string    `json:"description,omitempty"`
	Weight      int       `json:"weight,omitempty"`
	Tag         string    `json:"tag,omitempty"`
}

type nfdRule struct {
	Name               string          `json:"name"`
	IsMatch            bool            `json:"isMatch"`
	MatchedExpressions []nfdExpression `json:"matchedExpressions,omitempty"`
	MatchedAny         []nfdAny        `json:"matchedAny,omitempty"`
}

type nfdAny struct {
	MatchedExpressions []nfdExpression `json:"matchedExpressions"`
}

type nfdExpression struct {
	Feature     string                      `json:"feature"`
	Name        string                      `json:"name"`
	Expression  nfdv1alpha1.MatchExpression `json:"expression"`
	MatcherType string                      `json:"matcherType"`
	IsMatch     bool                        `json:"isMatch"`
}

func (f *validateOptions) run(cmd *cobra.Command) error {
	p, err := parsePlatform(f.platform)
	if err != nil {
		return err
	}
	if f.platform == "" {
		p = platform{os: runtime.GOOS, architecture: runtime.GOARCH}
	}
	opt, err := f.credential(cmd.InOrStdin())
	if err != nil {
		return err
	}
	s, err := f.settings.Over(cmd.ErrOrStderr(), world.UnknownInstallation())
	if err != nil {
		return err
	}
	c, ctx, cancel, err := f.registry.open(cmd.Context(), f.image, opt)
	if err != nil {
		return err
	}
	defer cancel()
	wait := printer.NewProgress(cmd)
	defer wait.End()
	wait.Step("Reading %s from %s…", f.image, c.Host())
	known := reviewKnown()
	known.Rules = s.Rules()
	reader, err := newArtifactReader(ctx, c, known)
	if err != nil {
		return err
	}
	a, err := reader.on(ctx, p)
	if err != nil {
		return err
	}
	var sets []*imagespec.Set
	if a != nil {
		if sets, err = a.sets(f.tags); err != nil {
			return err
		}
	}
	wait.Step("Reading the features of this machine…")
	name, found, err := (&machine.Flags{}).Read(cmd, "")
	if err != nil {
		return err
	}
	in := machine.Input(s.Gather(cluster.DefaultNamespace), name, found)
	verdict := imagespec.Check(sets, []*rules.Input{&in})[0]
	wait.End()
	if err := f.print(cmd.OutOrStdout(), a, sets, in, &verdict); err != nil {
		return err
	}
	if !verdict.Fits() && !f.exitZero {
		return cli.ErrFound
	}
	return nil
}

// maxSecret is the maximum size of a password or token.
const maxSecret = 64 << 10

// credential returns the options with the credentials of the flags.
func (f *validateOptions) credential(stdin io.Reader) (opt registry.Options, err error) {
	if !f.passwordStdin && !f.tokenStdin {
		return opt, nil
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxSecret))
	if err != nil {
		return opt, err
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" {
		return opt, errors.New("standard input is empty: it must hold the password or token of the registry")
	}
	opt.Credential = registry.StaticCredential(f.user, secret)
	return opt, nil
}

func (f *validateOptions) print(w io.Writer, a *compatibility, sets []*imagespec.Set, in rules.Input, v *imagespec.Verdict) error {
	out := make([]nfdSet, len(sets))
	for i, s := range sets {
		out[i] = nfdSetOf(s, in)
	}
	if f.json {
		return printer.Object(w, "json", out)
	}
	if a == nil {
		fmt.Fprintf(w, "%s has no compatibility artifact: it fits every node.\n", clip.Printable(f.image))
		return nil
	}
	st := printer.StyleOf(w)
	fmt.Fprintf(w, "%s: %s\n", clip.Printable(f.image), clip.Printable(a.text()))
	for i, s := range sets {
		result := st.Bad("not met")
		if slices.Contains(v.Met, s) {
			result = st.Good("met")
		}
		fmt.Fprintf(w, "\n%s: %s\n", clip.Printable(s.Title()), result)
		for _, r := range out[i].Rules {
			r.print(w)
		}
	}
	result := st.Good("The image fits this machine")
	if !v.Fits() {
		result = st.Bad("The image does not fit this machine")
	}
	fmt.Fprintf(w, "\n%s: %s.\n", result, imagespec.Meaning)
	return nil
}

// nfdSetOf returns the result of a set, with all expressions of all rules. As in NFD, the rules of a set without rules are null.
func nfdSetOf(s *imagespec.Set, in rules.Input) nfdSet {
	out := nfdSet{Description: s.Description, Weight: s.Weight, Tag: s.Tag}
	for _, t := range s.Trace(in) {
		r := nfdRule{Name: t.Rule, IsMatch: t.Matched, MatchedExpressions: nfdExpressions(t.MatchFeatures)}
		for _, terms := range t.MatchAny {
			r.MatchedAny = append(r.MatchedAny, nfdAny{nfdExpressions(terms)})
		}
		out.Rules = append(out.Rules, r)
	}
	return out
}

// nfdExpressions returns the expressions in NFD's order: by feature, then by element. Without any, the list is nil, which is null in JSON.
func nfdExpressions(terms []rules.TermTrace) []nfdExpression {
	var out []nfdExpression
	for _, t := range terms {
		add := func(x *rules.ExpressionTrace, matcher string) {
			e := nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchOp(x.Op), Value: x.Value, Type: nfdv1alpha1.ValueType(x.Type)}
			out = append(out, nfdExpression{t.Feature, x.Key, e, matcher, x.Held && t.Found})
		}
		for i := range t.Expressions {
			add(&t.Expressions[i], "matchExpression")
		}
		if t.Name != nil {
			add(t.Name, "matchName")
		}
	}
	slices.SortStableFunc(out, func(a, b nfdExpression) int {
		return cmp.Or(strings.Compare(a.Feature, b.Feature), strings.Compare(a.Name, b.Name))
	})
	return out
}

// print prints a rule with a line for each expression.
func (r *nfdRule) print(w io.Writer) {
	word := func(ok bool) string {
		if ok {
			return "OK"
		}
		return "FAIL"
	}
	fmt.Fprintf(w, "  rule %q: %s\n", clip.Printable(r.Name), word(r.IsMatch))
	t := &printer.Table{}
	t.Add("FEATURE", "EXPRESSION", "MATCHER", "RESULT")
	add := func(list []nfdExpression, suffix string) {
		for _, e := range list {
			expression := strings.TrimSpace(e.Name + " " + string(e.Expression.Op) + " " + strings.Join(e.Expression.Value, ", "))
			t.Add(e.Feature, expression, e.MatcherType+suffix, word(e.IsMatch))
		}
	}
	add(r.MatchedExpressions, "")
	for i, alternative := range r.MatchedAny {
		add(alternative.MatchedExpressions, fmt.Sprintf(" of alternative %d", i+1))
	}
	if len(t.Rows) > 1 {
		t.Print(w, "    ")
	}
}
