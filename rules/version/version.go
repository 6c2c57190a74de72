// Package version compares version numbers of kernels, operating systems and drivers.
package version

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxNumbers is the maximum number of numbers in a version. Windows builds and driver packages have four, calendar versions up to
// six.
const MaxNumbers = 8

// V is a version: its leading numbers; missing numbers are zero. Pre-release and build suffixes are ignored, so that 5.14.0-362.el9
// equals 5.14.0. Values can be compared with ==. The zero V is version 0.
type V struct {
	numbers [MaxNumbers]uint64
}

// Parse parses versions as used in Linux distributions: an optional v, numbers separated by dots, and any suffix that does not
// continue the numbers. It accepts all input of ParseStrict with the same result, and also the suffixes of RPM packages
// (5.14.0-362.el9.x86_64), a trailing + and up to MaxNumbers numbers. A wildcard (1.x, 1.*) is not a version.
func Parse(s string) (V, error) {
	var v V
	rest := strings.TrimPrefix(s, "v")
	for i := 0; ; i++ {
		if i == MaxNumbers {
			return V{}, fmt.Errorf("version %q has more than %d numbers", s, MaxNumbers)
		}
		n := digits(rest)
		if n == 0 {
			return V{}, fmt.Errorf("version %q does not start with a number", s)
		}
		number, err := strconv.ParseUint(rest[:n], 10, 64)
		if err != nil {
			return V{}, fmt.Errorf("version %q: %s is too large", s, rest[:n])
		}
		v.numbers[i], rest = number, rest[n:]
		if !strings.HasPrefix(rest, ".") {
			return v, nil
		}
		if wildcard(rest[1:]) {
			return V{}, fmt.Errorf("version %q holds a wildcard", s)
		}
		if digits(rest[1:]) == 0 {
			return v, nil
		}
		rest = rest[1:]
	}
}

// ParseStrict parses a version as NFD does: semantic versioning with one to three numbers, leading zeros and an optional v:
// major[.minor[.patch]][-prerelease][+build]. For the suffixes, see https://semver.org, items 9 and 10.
func ParseStrict(s string) (V, error) {
	core, build, hasBuild := strings.Cut(strings.TrimPrefix(s, "v"), "+")
	core, pre, hasPre := strings.Cut(core, "-")
	if hasBuild && !identifiers(build, false) {
		return V{}, fmt.Errorf("version %q: invalid build suffix %q", s, build)
	}
	if hasPre && !identifiers(pre, true) {
		return V{}, fmt.Errorf("version %q: invalid pre-release suffix %q", s, pre)
	}

	var v V
	for i := range 3 {
		number, rest, more := strings.Cut(core, ".")
		if number == "" || digits(number) != len(number) {
			return V{}, fmt.Errorf("version %q: invalid number %q", s, number)
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return V{}, fmt.Errorf("version %q: %s is too large", s, number)
		}
		v.numbers[i] = n
		if !more {
			return v, nil
		}
		core = rest
	}
	return V{}, fmt.Errorf("version %q has more than three numbers", s)
}

// Compare returns -1, 0 or +1 if v is older than, equal to or newer than w.
func (v V) Compare(w V) int {
	for i, n := range v.numbers {
		switch {
		case n < w.numbers[i]:
			return -1
		case n > w.numbers[i]:
			return +1
		}
	}
	return 0
}

// String returns the numbers, at least three of them.
func (v V) String() string {
	last := MaxNumbers - 1
	for last > 2 && v.numbers[last] == 0 {
		last--
	}
	var b []byte
	for i := 0; i <= last; i++ {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, v.numbers[i], 10)
	}
	return string(b)
}

// digits returns the number of decimal digits at the start of s.
func digits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// wildcard reports whether s begins with a wildcard.
func wildcard(s string) bool {
	if s == "" || !strings.ContainsRune("xX*", rune(s[0])) {
		return false
	}
	return len(s) == 1 || s[1] == '.'
}

// identifiers reports whether s is a list of semantic version identifiers separated by dots. Numbers in a pre-release must not
// begin with a zero.
func identifiers(s string, prerelease bool) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.ContainsFunc(part, notIdentifier) {
			return false
		}
		if prerelease && len(part) > 1 && part[0] == '0' && digits(part) == len(part) {
			return false
		}
	}
	return true
}

func notIdentifier(r rune) bool {
	return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '-')
}
