package expr

import (
	"strconv"
	"strings"
)

// decimal is a number with at most nine digits after the point, as Kubernetes' quantities: whole + nano/1e9.
type decimal struct {
	whole int64
	nano  int64 // 0 <= nano < nanos
}

const (
	nanos      = 1_000_000_000
	nanoDigits = 9
)

// decimalOf parses a number: a value with Number, or a string with a fraction.
func decimalOf(v Value) (decimal, bool) {
	if n, ok := v.Number(); ok {
		return decimal{whole: n}, true
	}
	if v.kind != String {
		return decimal{}, false
	}
	text := strings.TrimSpace(v.text)
	front, fraction, found := strings.Cut(text, ".")
	if !found || !isInteger(front) || fraction == "" || len(fraction) > nanoDigits || !isInteger("0"+fraction) {
		return decimal{}, false
	}
	whole, err := strconv.ParseInt(front, 10, 64)
	if err != nil {
		return decimal{}, false
	}
	nano, err := strconv.ParseInt(fraction+strings.Repeat("0", nanoDigits-len(fraction)), 10, 64)
	if err != nil {
		return decimal{}, false
	}
	d := decimal{whole: whole, nano: nano}
	if front[0] == '-' && nano > 0 {
		d.nano = nanos - nano
		return d, d.add(decimal{whole: -1})
	}
	return d, true
}

// add adds a number, and reports whether the sum fits.
func (d *decimal) add(o decimal) bool {
	whole, message := arithmetic(opAdd, d.whole, o.whole)
	nano := d.nano + o.nano
	if nano >= nanos {
		nano -= nanos
		var again string
		if whole, again = arithmetic(opAdd, whole, 1); message == "" {
			message = again
		}
	}
	d.whole, d.nano = whole, nano
	return message == ""
}

// value returns a whole number as a number, and a fraction as text: the language has no fractions.
func (d decimal) value() Value {
	if d.nano == 0 {
		return OfInt(d.whole)
	}
	whole, nano, sign := d.whole, d.nano, ""
	if whole < 0 {
		whole, nano, sign = -(whole + 1), nanos-nano, "-"
	}
	fraction := strconv.FormatInt(nanos+nano, 10)[1:]
	return OfText(sign + strconv.FormatInt(whole, 10) + "." + strings.TrimRight(fraction, "0"))
}
