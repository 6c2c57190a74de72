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

// Maximum lengths in bytes that the API server accepts (apimachinery's validation of qualified names and label
// values).
const (
	maxNamespace  = 253
	maxName       = 63
	maxLabelValue = 63
)

// MaxQuantity is the largest quantity of an extended resource that the API server accepts: it checks in thousandths,
// in 64 bits, whether the quantity is whole.
const MaxQuantity = math.MaxInt64 / 1000

// faultOfKey returns what is wrong with a qualified name; empty if it is valid. It is written by hand because the
// check runs for every computed label of every node, and apimachinery's costs two regexps.
func faultOfKey(key string) string {
	name := key
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if namespace := key[:i]; namespace != nfdv1alpha1.FeatureLabelNamespace { // nearly all keys have this one, which is valid
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
		return fmt.Sprintf("the namespace %q is not a DNS name in lower case", clip.Text(namespace, maxShown))
	}
	return ""
}

// faultOfWord checks the characters of a name or of a label's value: alphanumeric at both ends, and between them '-',
// '_' or '.' as well.
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

// describe names the character at byte i in a way that shows invisible ones.
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
	*v = refuse(v.Key, BadValue, fmt.Sprintf("the value %s is not a valid label value: %s", strconv.Quote(clip.Text(value, maxShown)), fault),
		"write up to 63 letters, digits, '-', '_' and '.'")
}

// checkQuantity rejects quantities that the API server rejects, with one exception: under Strict, negative and
// fractional quantities pass as they do in NFD, and the API server rejects them.
func (p *Policy) checkQuantity(v *Verdict, text string) {
	const advice = "write a whole number such as 4, 2k or 1Gi"
	q, err := parseQuantity(text)
	if err != nil {
		*v = refuse(v.Key, BadValue, fmt.Sprintf("%s is not a quantity", strconv.Quote(clip.Text(text, maxShown))), advice)
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
		*v = refuse(v.Key, BadValue, fmt.Sprintf("the quantity %s is not a whole number", text), advice)
	}
}

// whole reports whether a quantity has no fraction at all: MilliValue rounds up anything finer than a thousandth.
func whole(q resource.Quantity) bool { return q.CmpInt64(q.Value()) == 0 }

// Limits for the input of the quantity parser, which computes with arbitrary precision: 1e999999999 takes it an
// unbounded time.
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
