package keys

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/clip"
)

// MaxConditionMessage is the maximum length in bytes of the message of a condition, which every client that lists Nodes receives.
const MaxConditionMessage = 1024

// maxConditionReason is the maximum length of a reason, as in conditions of other kinds.
const maxConditionReason = 128

// FormatCondition formats what a condition says, without its times: "STATUS REASON: MESSAGE". The status may be in any case; reason and
// message may be empty.
func FormatCondition(status, reason, message string) string {
	text := status
	for _, known := range statuses {
		if strings.EqualFold(status, string(known)) {
			text = string(known)
		}
	}
	if reason != "" {
		text += " " + reason
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

// ParseCondition is the inverse of FormatCondition.
func ParseCondition(text string) (status corev1.ConditionStatus, reason, message string) {
	head, message, _ := strings.Cut(text, ": ")
	first, reason, _ := strings.Cut(head, " ")
	return corev1.ConditionStatus(first), reason, message
}

var statuses = [...]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// Condition checks the type of a condition and what it says, in the form of FormatCondition.
func (p *Policy) Condition(kind, text string) Verdict {
	v := p.ConditionType(kind)
	if !v.OK() {
		return v
	}
	status, reason, message := ParseCondition(text)
	known := false
	for _, s := range statuses {
		known = known || s == status
	}
	switch {
	case !known:
		return refuse(kind, BadValue, fmt.Sprintf("invalid status %s of the condition %q", strconv.Quote(clip.Text(string(status), maxShown)), kind),
			"write True, False or Unknown")
	case !isReason(reason):
		return refuse(kind, BadValue, fmt.Sprintf("invalid reason %s of the condition %q", strconv.Quote(clip.Text(reason, maxShown)), kind),
			fmt.Sprintf("write one word in CamelCase, of at most %d letters, digits and '_'", maxConditionReason))
	case len(message) > MaxConditionMessage:
		return refuse(kind, BadValue, fmt.Sprintf("the message of the condition %q is %d bytes long", kind, len(message)),
			fmt.Sprintf("write at most %d bytes", MaxConditionMessage))
	case !utf8.ValidString(message):
		return refuse(kind, BadValue, fmt.Sprintf("the message of the condition %q is not UTF-8", kind), "")
	}
	return v
}

// isReason reports whether a string is empty or a word that programs can read.
func isReason(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(s) <= maxConditionReason
}
