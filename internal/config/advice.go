package config

import (
	"fmt"
	"regexp"
	"strings"
)

// domain matches what looks like the namespace of a label in a regular expression.
var domain = regexp.MustCompile(`(?i)[a-z0-9-]+\\?\.(com|io|org|net|dev|cloud)\b|/`)

// AdviseWhiteList checks labelWhiteList, which is compared with the names of labels without their namespaces. It returns a warning, or "".
func AdviseWhiteList(pattern string) string {
	for branch := range strings.SplitSeq(pattern, "|") {
		if found := domain.FindString(branch); found != "" {
			return fmt.Sprintf("no label name contains %q: the namespace is not part of the name; write for example ^(pci|cpu)-", found)
		}
	}
	return ""
}
