package keys

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"

	"github.com/assay-project/assay/rules/clip"
)

// Maximum lengths in bytes, from apimachinery's validation of qualified names and label values.
const (
	maxNamespace  = 253
	maxName       = 63
	maxLabelValue = 63
)

// MaxQuantity is the maximum quantity of an extended resource. The API server checks in thousandths, as a 64-bit integer, whether a
// quantity is whole.
const MaxQuantity = math.MaxInt64 / 1000

// faultOfKey returns the reason why a qualified name is invalid, or "" if it is valid. It runs for every computed label of every
// node, and apimachinery's validation needs two regular expressions.
func faultOfKey(key string) string {
	name := key
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if namespace := key[:i]; namespace != nfdv1alpha1.FeatureLabelNamespace { // most keys have this namespace, which is valid
			if fault := faultOfNamespace(namespace); fault != "" {
				return fault
			}
		}
		name = key[i+1:]
		break
	}
	switch {
	case name == "":
		return "the name is empty"
	case len(name) > maxName:
		return fmt.Sprintf("the name has %d characters, at most %d are allowed", len(name), maxName)
	}
	return faultOfWord(name)
}

func faultOfNamespace(namespace string) string {
	switch {
	case namespace == "":
		return "the namespace before the slash is empty"
	case len(namespace) > maxNamespace:
		return fmt.Sprintf("the namespace has %d characters, at most %d are allowed", len(namespace), maxNamespace)
	}
	for i := range len(namespace) {
		c := namespace[i]
		first := i == 0 || namespace[i-1] == '.'
		last := i == len(namespace)-1 || namespace[i+1] == '.'
		alphanumeric := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if alphanumeric || c == '-' && !first && !last || c == '.' && !first && i != len(namespace)-1 {
			continue
		}
		return fmt.Sprintf("invalid namespace %q: use a DNS name in lower case", clip.Text(namespace, maxShown))
	}
	return ""
}

// faultOfWord checks the characters of a name or label value: alphanumeric at both ends, and alphanumeric, '-', '_' or '.' in
// between.
func faultOfWord(word string) string {
	for i := range len(word) {
		c := word[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			continue
		}
		if c != '-' && c != '_' && c != '.' {
			return fmt.Sprintf("%s is not allowed", describe(word, i))
		}
		if i == 0 || i == len(word)-1 {
			return fmt.Sprintf("it begins or ends with %q", string(c))
		}
	}
	return ""
}

// describe describes the character at byte i so that invisible characters can be recognized.
func describe(s string, i int) string {
	if s[i] < 0x80 {
		return strconv.QuoteRune(rune(s[i]))
	}
	for _, r := range s[i:] {
		return strconv.QuoteRuneToASCII(r)
	}
	return ""
}

func (p *Policy) checkLabelValue(v *Verdict, value string) {
	var fault string
	if len(value) > maxLabelValue {
		fault = fmt.Sprintf("it has %d characters, at most %d are allowed", len(value), maxLabelValue)
	} else {
		fault = faultOfWord(value)
	}
	if fault == "" {
		return
	}
	*v = refuse(v.Key, BadValue, fmt.Sprintf("invalid label value %s: %s", strconv.Quote(clip.Text(value, maxShown)), fault),
		"write up to 63 letters, digits, '-', '_' and '.'")
}

// checkQuantity rejects quantities that the API server rejects, with one exception: if Strict is set, it accepts negative and
// fractional quantities, as NFD does.
func (p *Policy) checkQuantity(v *Verdict, text string) {
	const advice = "write a whole number such as 4, 2k or 1Gi"
	q, err := parseQuantity(text)
	if err != nil {
		*v = refuse(v.Key, BadValue, fmt.Sprintf("invalid quantity %s", strconv.Quote(clip.Text(text, maxShown))), advice)
		return
	}
	if p.Strict {
		return
	}
	switch {
	case q.Sign() < 0:
		*v = refuse(v.Key, BadValue, fmt.Sprintf("the quantity %s is negative", text), advice)
	case q.CmpInt64(MaxQuantity) > 0:
		*v = refuse(v.Key, BadValue, fmt.Sprintf("the quantity %s is larger than %d", text, int64(MaxQuantity)), advice)
	case q.MilliValue()%1000 != 0 || !whole(q):
		*v = refuse(v.Key, BadValue, fmt.Sprintf("invalid quantity %q: it is not a whole number", text), advice)
	}
}

// whole reports whether a quantity is an integer: MilliValue rounds up anything finer than a thousandth.
func whole(q resource.Quantity) bool { return q.CmpInt64(q.Value()) == 0 }

// Limits on the input of the quantity parser, which uses arbitrary precision: parsing 1e999999999 would take too long.
const (
	maxQuantityText   = 64
	maxExponentDigits = 2
)

func parseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantityText {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-0")) > maxExponentDigits {
		return resource.Quantity{}, resource.ErrFormatWrong
	}
	return resource.ParseQuantity(text)
}
