package node

import (
	"errors"
	"slices"
	"strconv"
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
	{"metadata.taints", keys.Taint}, // so the API server names the field
	{"spec.taints", keys.Taint},
}

// blame returns the steps that the API server rejects in one of the two patches of a plan, that of taints or that of everything else, or nil
// if the error has another reason. The causes of an error name fields. Only if they name none, for example in an answer of a webhook, the words
// of the message count.
func blame(err error, p *plan.Plan, taints bool) func(plan.Step) bool {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return nil
	}
	// A taint that goes is tried again soon: it keeps pods off the node, and a policy that has just been changed can be behind.
	counts := func(s plan.Step) bool { return (s.Kind == keys.Taint) == taints && !(taints && s.Op == plan.Remove) }
	steps := slices.DeleteFunc(slices.Clone(p.Steps), func(s plan.Step) bool { return !counts(s) })
	blamed := blameCauses(err, p, steps)
	if blamed == nil {
		blamed = blameWords(err.Error(), steps, apierrors.IsInvalid(err))
	}
	if blamed == nil {
		return nil
	}
	return func(s plan.Step) bool { return counts(s) && blamed(s) }
}

// blameCauses returns the steps whose fields the causes of an error name; nil: they name none. A field names a key in brackets. A field
// without a key is that of all labels, for example: the words of the cause then say which one it is, among the keys of this kind. Taints are
// a list, in which a field names a place.
func blameCauses(err error, p *plan.Plan, steps []plan.Step) func(plan.Step) bool {
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
			if known.kind == keys.Taint {
				key = taintAt(p, key)
			}
			var same []plan.Step // of the kind
			for _, s := range steps {
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

// taintAt returns the name of the taint at a place of the list that a plan writes; "": the list has no such place.
func taintAt(p *plan.Plan, place string) string {
	list := p.TaintsAfter()
	i, err := strconv.Atoi(place)
	if err != nil || i < 0 || i >= len(list) {
		return ""
	}
	return keys.TaintName(list[i])
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
	whole, withEffects := words(message, "-_./"), words(message, "-_./:=")
	ways := []func(plan.Step) bool{ // the most precise first: a key can be a part of another one
		func(s plan.Step) bool {
			key, effect, _ := strings.Cut(s.Key, ":")
			return s.Kind == keys.Taint && (withEffects[s.Key] || withEffects[key+"="+s.New+":"+effect])
		},
		func(s plan.Step) bool { return whole[keyIn(s)] },
		func(s plan.Step) bool { return strings.Contains(message, keyIn(s)) },
		func(s plan.Step) bool { return s.Kind == keys.Resource && invalid },
	}
	for _, named := range ways {
		if slices.ContainsFunc(steps, named) {
			return named
		}
	}
	return nil
}

// keyIn returns the key of a step as messages have it: without the effect of a taint.
func keyIn(s plan.Step) string {
	if s.Kind == keys.Taint {
		key, _, _ := strings.Cut(s.Key, ":")
		return key
	}
	return s.Key
}

// words returns the parts of a message that consist of letters, digits and some other characters.
func words(message, others string) map[string]bool {
	out := map[string]bool{}
	for _, word := range strings.FieldsFunc(message, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(others, c)
	}) {
		out[strings.Trim(word, others)] = true // of the end of a sentence
	}
	return out
}
