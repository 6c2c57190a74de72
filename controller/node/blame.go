package node

import (
	"errors"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// fieldKinds are the kinds of keys in the fields of a Node.
var fieldKinds = []struct {
	field string
	kind  keys.Kind
}{
	{"metadata.labels", keys.Label},
	{"metadata.annotations", keys.Annotation},
	{"status.capacity", keys.Resource},
	{"status.allocatable", keys.Resource},
	{"status.conditions", keys.Condition},
}

// blame returns the steps of a plan that the API server rejects, or nil if the error has another reason. The causes of an error name fields.
// Only if they name none, for example in an answer of a webhook, the words of the message count.
func blame(err error, p *plan.Plan) func(plan.Step) bool {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return nil
	}
	if blamed := blameCauses(err, p); blamed != nil {
		return blamed
	}
	return blameWords(err.Error(), p.Steps, apierrors.IsInvalid(err))
}

// blameCauses returns the steps whose fields the causes of an error name; nil: they name none. A field names a key in brackets. A field
// without a key is that of all labels, for example: the words of the cause then say which one it is, among the keys of this kind.
func blameCauses(err error, p *plan.Plan) func(plan.Step) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	blamed := map[string]bool{} // by the name of the step
	for _, cause := range status.Status().Details.Causes {
		for _, known := range fieldKinds {
			rest, ok := strings.CutPrefix(cause.Field, known.field)
			if !ok || rest != "" && rest[0] != '[' && rest[0] != '.' {
				continue
			}
			key, _, _ := strings.Cut(strings.TrimPrefix(rest, "["), "]")
			var same []plan.Step // of the kind
			for _, s := range p.Steps {
				if s.Kind != known.kind || s.Mark {
					continue
				}
				if same = append(same, s); s.Key == key {
					blamed[nameOf(s)] = true
				}
			}
			if rest != "" && known.kind != keys.Condition { // the conditions have indices
				continue
			}
			if named := blameWords(cause.Message, same, true); named != nil {
				for _, s := range same {
					blamed[nameOf(s)] = blamed[nameOf(s)] || named(s)
				}
			} else if s := onlyWith(same, cause.Message); s != nil {
				blamed[nameOf(*s)] = true
			}
		}
	}
	if len(blamed) == 0 {
		return nil
	}
	return func(s plan.Step) bool { return blamed[nameOf(s)] }
}

// onlyWith returns the step whose new value a message quotes; nil: there is none, or there are several.
func onlyWith(list []plan.Step, message string) (found *plan.Step) {
	for i := range list {
		if s := &list[i]; s.New != "" && strings.Contains(message, `"`+s.New+`"`) {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

func nameOf(s plan.Step) string { return hold.Key(s.Kind, s.Key) }

// blameWords returns the steps whose keys a message names; nil: it names none. If it names none and the values are invalid, extended resources are
// the most likely cause, since the API server validates nothing else that was not already validated. If it was another key, the resources are
// written in the next pass.
func blameWords(message string, steps []plan.Step, invalid bool) func(plan.Step) bool {
	named, contained, resources := map[string]bool{}, map[string]bool{}, false
	whole := words(message)
	for _, s := range steps {
		resources = resources || s.Kind == keys.Resource
		if whole[s.Key] {
			named[s.Key] = true
		} else if strings.Contains(message, s.Key) {
			contained[s.Key] = true
		}
	}
	switch {
	case len(named) > 0: // a key can be a part of another one
		return func(s plan.Step) bool { return named[s.Key] }
	case len(contained) > 0:
		return func(s plan.Step) bool { return contained[s.Key] }
	case resources && invalid:
		return func(s plan.Step) bool { return s.Kind == keys.Resource }
	}
	return nil
}

// words returns the parts of a message that can be keys.
func words(message string) map[string]bool {
	out := map[string]bool{}
	for _, word := range strings.FieldsFunc(message, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_./", c)
	}) {
		out[strings.Trim(word, "-_./")] = true // of the end of a sentence
	}
	return out
}
