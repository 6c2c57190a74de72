package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/column"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

// filterHelp is appended to errors in filters.
const filterHelp = `write for example: cpu.model.vendor_id = Intel and kernel.version.major >= 6, or label topology.kubernetes.io/zone In eu-1, eu-2`

// compileFilter compiles a filter: short terms, or a requirement in YAML. It returns nil for an empty filter.
func compileFilter(text string, opt rules.Options) (*requirements.Requirements, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	source := text
	switch {
	case strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "["):
		source = "matchFeatures:\n" + text
	case !isRequirement(text):
		required, err := parseTerms(text)
		if err != nil {
			return nil, err
		}
		data, err := yaml.Marshal(required)
		if err != nil {
			return nil, err
		}
		source = string(data)
	}
	reqs, report := requirements.Annotations(map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: source}, field.NewPath("filter"), opt)
	if !report.OK() {
		var list []error
		for _, e := range report.Errors {
			list = append(list, errors.New(review.Text(e)))
		}
		return nil, errors.Join(list...)
	}
	return reqs, nil
}

// isRequirement reports whether a filter is a requirement in YAML.
func isRequirement(text string) bool {
	return slices.ContainsFunc([]string{"matchFeatures:", "matchAny:", "conditions:", "{"}, func(prefix string) bool {
		return strings.HasPrefix(text, prefix)
	})
}

// symbols are short forms of operators.
var symbols = map[string]nfdv1alpha1.MatchOp{
	"=": nfdv1alpha1.MatchIn, "==": nfdv1alpha1.MatchIn, "!=": nfdv1alpha1.MatchNotIn, "~": nfdv1alpha1.MatchInRegexp,
	">": nfdv1alpha1.MatchGt, ">=": nfdv1alpha1.MatchGe, "<": nfdv1alpha1.MatchLt, "<=": nfdv1alpha1.MatchLe,
}

// parseTerms parses short terms separated by "and": NAME [OPERATOR VALUE, …].
func parseTerms(text string) (*assayv1alpha1.Requirement, error) {
	words, err := splitWords(text)
	if err != nil {
		return nil, err
	}
	out := &assayv1alpha1.Requirement{}
	for len(words) > 0 {
		end := slices.IndexFunc(words, func(w word) bool { return !w.quoted && strings.EqualFold(w.text, "and") })
		term, rest := words, []word(nil)
		if end >= 0 {
			if term, rest = words[:end], words[end+1:]; len(rest) == 0 {
				return nil, errors.New("nothing follows and; " + filterHelp)
			}
		}
		if err := parseTerm(out, term); err != nil {
			return nil, err
		}
		words = rest
	}
	return out, nil
}

func parseTerm(out *assayv1alpha1.Requirement, words []word) error {
	if len(words) == 0 {
		return errors.New("missing term before \"and\"; " + filterHelp)
	}
	label := words[0].text == "label" && len(words) > 1
	if label {
		words = words[1:]
	}
	name, op := words[0].text, nfdv1alpha1.MatchExists
	var values []string
	if len(words) > 1 {
		op = nfdv1alpha1.MatchOp(words[1].text)
		if short, ok := symbols[words[1].text]; ok {
			op = short
		}
		for _, w := range words[2:] {
			values = append(values, w.text)
		}
	}
	if label {
		c, err := labelCondition(name, op, values)
		out.Conditions = append(out.Conditions, c)
		return err
	}
	feature, element, ok := column.Split(name)
	if !strings.Contains(feature, ".") {
		return fmt.Errorf("invalid name %q: a feature is for example cpu.model, and an element cpu.model.vendor_id; %s", name, filterHelp)
	}
	term := nfdv1alpha1.FeatureMatcherTerm{Feature: feature}
	if ok {
		term.MatchExpressions = &nfdv1alpha1.MatchExpressionSet{element: {Op: op, Value: values}}
	} else if len(words) > 1 {
		return fmt.Errorf("%s is a feature: name one of its elements to compare, such as %s.NAME %s", feature, feature, op)
	}
	out.MatchFeatures = append(out.MatchFeatures, term)
	return nil
}

// labelKey matches valid label keys. A key becomes part of an expression.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// labelCondition returns a condition on a label of the Node.
func labelCondition(key string, op nfdv1alpha1.MatchOp, values []string) (c nfdv1alpha1.Condition, err error) {
	if !labelKey.MatchString(key) {
		return c, fmt.Errorf("invalid label key %q", key)
	}
	value := `{node.labels["` + key + `"]}`
	args := map[string]any{"value": value}
	count := 0
	switch op {
	case nfdv1alpha1.MatchExists:
		c.Op = "!is-none"
	case nfdv1alpha1.MatchDoesNotExist:
		c.Op = "is-none"
	case nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn:
		c.Op, args["values"], count = "one-of", values, max(1, len(values))
		c.Invert = op == nfdv1alpha1.MatchNotIn
	case nfdv1alpha1.MatchInRegexp:
		c.Op, count = "contains", 1
		if len(values) == 1 {
			args["regex"] = values[0]
		}
	case nfdv1alpha1.MatchGt, nfdv1alpha1.MatchLt:
		c.Op, count = strings.ToLower(string(op)), 1
		args = map[string]any{"values": append([]string{value}, values...)}
	default:
		return c, fmt.Errorf("invalid operator %q for a label: use Exists, DoesNotExist, In, NotIn, InRegexp, Gt or Lt", op)
	}
	if len(values) != count {
		return c, fmt.Errorf("operator %s of label %s takes %d values, found %d", op, key, count, len(values))
	}
	c.Args.Raw, err = json.Marshal(args)
	return c, err
}

// word is a word of a filter.
type word struct {
	text   string
	quoted bool
}

// splitWords splits at spaces and commas. A string in double quotes is one word.
func splitWords(text string) ([]word, error) {
	var out []word
	for {
		text = strings.TrimLeft(text, " \t\r\n,")
		if text == "" {
			return out, nil
		}
		if text[0] == '"' {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return nil, fmt.Errorf("a closing quote is missing after %s", text)
			}
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("invalid string %s", quoted)
			}
			out, text = append(out, word{value, true}), text[len(quoted):]
			continue
		}
		end := strings.IndexAny(text, " \t\r\n,")
		if end < 0 {
			end = len(text)
		}
		out, text = append(out, word{text: text[:end]}), text[end:]
	}
}

// quoteWord quotes a value as one word of a filter.
func quoteWord(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\r\n,\"") || strings.EqualFold(value, "and") || strconv.Quote(value) != `"`+value+`"` {
		return strconv.Quote(value)
	}
	return value
}
