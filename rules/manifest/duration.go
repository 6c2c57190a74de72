package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// duration is the pattern of durations in the CRDs.
var duration = regexp.MustCompile(`^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$`)

// otherDuration matches durations in other notations: a number, and a word for the unit or none.
var otherDuration = regexp.MustCompile(`^([0-9]+) ?([a-z]*)$`)

// hoursPerDay is for durations in days, a unit that durations do not have.
const hoursPerDay = 24

// CheckDuration returns an error that says what to write if a string is not a duration of the form that the CRDs accept.
func CheckDuration(s string) error {
	if duration.MatchString(s) && json.Unmarshal([]byte(`"`+s+`"`), &metav1.Duration{}) == nil {
		return nil
	}
	example := "for example 90s, 10m or 1h"
	if m := otherDuration.FindStringSubmatch(strings.ToLower(s)); m != nil && len(m[1]) < 9 {
		switch unit, of := m[2], func(long string) bool { return strings.HasPrefix(long, m[2]) }; {
		case unit == "" && m[1] != "0":
			example = "for example " + m[1] + "s"
		case of("seconds") || unit == "secs":
			example = m[1] + "s"
		case of("minutes") || unit == "mins":
			example = m[1] + "m"
		case of("hours") || unit == "hr" || unit == "hrs":
			example = m[1] + "h"
		case of("days"):
			hours := 0
			_, _ = fmt.Sscan(m[1], &hours) // digits only
			example = fmt.Sprint(hours*hoursPerDay, "h")
		}
	}
	return fmt.Errorf("invalid duration %q: use %s", s, example)
}

// Locator reports whether a base is a file, such as common/site.yaml, and not the name of a NodeFeatureRuleTemplate.
func Locator(base string) bool {
	return strings.Contains(base, "/") && !strings.Contains(base, "://") || strings.HasSuffix(base, ".yaml") || strings.HasSuffix(base, ".yml") || strings.HasSuffix(base, ".json")
}
