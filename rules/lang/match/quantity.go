package match

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/version"
)

// Quantity returns the number of bytes of a quantity such as 500Gi. It returns false if the string is not a quantity, or not a whole
// number of bytes.
func Quantity(s string) (int64, bool) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, false
	}
	n := q.Value() // rounded up
	return n, q.CmpInt64(n) == 0
}

// quantity returns the bound of a comparison that is not an integer: a quantity, for an attribute in bytes. If it is not valid, it
// returns what to add to the error.
func (c *compiler) quantity(at place, v string) (n int64, why string, ok bool) {
	element := dictionary.FindElement(c.feature, at.key)
	n, whole := Quantity(v)
	switch {
	case element == nil || element.Kind != dictionary.Bytes && element.Kind != dictionary.Integer:
		if _, err := version.Parse(v); err == nil {
			return 0, `; to compare versions, add "type: version"`, false
		}
		return 0, "", false
	case element.Kind == dictionary.Integer && whole:
		return 0, fmt.Sprintf("; %s is not in bytes and takes no quantity, its values are such as %s", at.key, element.Typical()[0]), false
	case element.Kind == dictionary.Integer:
		return 0, "", false
	case whole && !c.strict:
		return n, "", true
	case whole:
		return 0, fmt.Sprintf("; NFD has no quantities: write %d", n), false
	case strings.HasSuffix(v, "m"):
		return 0, "; m is milli: write M or Mi", false
	}
	return 0, "; write a number of bytes, or a quantity such as 16Gi", false
}
