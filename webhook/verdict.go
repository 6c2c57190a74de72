package webhook

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/warning"
)

const (
	// maxWarnings is the maximum number of warnings: kubectl prints each on one line.
	maxWarnings = 10
	// maxWarningsLen is the maximum number of characters of all warnings together. If those of a response exceed 4,096, the API server
	// cuts each after 256; a quarter is left for other webhooks.
	maxWarningsLen = 3 << 10
	// maxWarningLen is the maximum number of characters of a warning if all together are too long.
	maxWarningLen = 256
	// maxErrors is the maximum number of errors in a rejection; an object with 256 rules can have thousands.
	maxErrors = 64
	// maxValueLen is the maximum length in bytes of an invalid value in an error.
	maxValueLen = 256
)

// verdict is the result of a review.
type verdict struct {
	review.Findings

	// patch is a JSON patch for the object; nil: no change.
	patch []byte
}

// response returns the response for the verdict. A rejected object gets its warnings too, so that its author can fix all at once.
func (v *verdict) response(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if len(v.Errors) == 0 {
		r := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true, Warnings: worst(v.Warnings)}
		if v.patch != nil {
			kind := admissionv1.PatchTypeJSONPatch
			r.Patch, r.PatchType = v.patch, &kind
		}
		return r
	}
	errs := v.Errors
	if more := len(errs) - maxErrors; more > 0 {
		last := field.Forbidden(field.NewPath("spec"), fmt.Sprintf("and %d more problems, not shown", more))
		errs = append(errs[:maxErrors:maxErrors], last)
	}
	for i, err := range errs {
		if s, ok := err.BadValue.(string); ok && len(s) > maxValueLen {
			cut := *err
			cut.BadValue = clip.Text(s, maxValueLen)
			errs[i] = &cut
		}
	}
	name := req.Name
	if name == "" {
		name = "(generated name)"
	}
	status := apierrors.NewInvalid(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, name, errs).Status()
	status.Message = list(req, name, errs)
	return &admissionv1.AdmissionResponse{UID: req.UID, Result: &status, Warnings: worst(v.Warnings)}
}

// list returns the message of a rejection: one line for one error, a list for several.
func list(req *admissionv1.AdmissionRequest, name string, errs field.ErrorList) string {
	head := fmt.Sprintf("%s %q is invalid: ", req.Kind.Kind, name)
	if len(errs) == 1 {
		return head + errs[0].Error()
	}
	var b strings.Builder
	for _, e := range errs {
		b.WriteString("\n* " + e.Error())
	}
	return head + b.String()
}

// worst returns the warnings that can be shown, most severe first, each on one line and without duplicates. If they are too long for
// the API server, each is shortened.
func worst(all []warning.Warning) []string {
	sort.SliceStable(all, func(i, j int) bool { return all[i].Rank < all[j].Rank })
	var out, short []string
	seen := map[string]bool{}
	for _, w := range all {
		path, message := strings.Map(printable, w.Path), strings.Map(printable, w.Message)
		line := message
		if path != "" {
			line = path + ": " + message
		}
		if !seen[line] {
			seen[line] = true
			out, short = append(out, line), append(short, oneLine(path, message))
		}
	}
	if more := len(out) - maxWarnings + 1; more > 1 {
		last := fmt.Sprintf("and %d more warnings; assay lint shows them all", more)
		out, short = append(out[:maxWarnings-1], last), append(short[:maxWarnings-1], last)
	}
	if utf8.RuneCountInString(strings.Join(out, "")) > maxWarningsLen {
		return short
	}
	return out
}

// oneLine shortens a warning to the length that is shown: first it removes the middle of the path, then the last clauses of the
// message, then its end.
func oneLine(path, message string) string {
	if path == "" {
		return cut(message, maxWarningLen)
	}
	line := path + ": " + message
	if utf8.RuneCountInString(line) <= maxWarningLen {
		return line
	}
	head := middle.ReplaceAllString(path, "…")
	head = cut(head, maxPathLen)
	for {
		line = head + ": " + message
		i := strings.LastIndex(message, "; ")
		if utf8.RuneCountInString(line) <= maxWarningLen || i < 0 {
			return cut(line, maxWarningLen)
		}
		message = message[:i]
	}
}

// middle is the least useful part of a path.
var middle = regexp.MustCompile(`\.(matchAny|matchFeatures)\[.*matchExpressions`)

// maxPathLen is the maximum length of the path in a long line, in bytes.
const maxPathLen = 120

func cut(s string, length int) string {
	if r := []rune(s); len(r) > length {
		return string(r[:length-1]) + "…"
	}
	return s
}

// printable replaces characters that are unsafe in a terminal or an HTTP header.
func printable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}
