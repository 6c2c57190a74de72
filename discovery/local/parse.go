package local

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery/host"
)

// elements collects the content of feature files.
type elements struct {
	labels, features map[string]string
	from             map[string]string // where a name was last set
	prefixes         []string          // of the names that this file can set; nil: all
	problems         []error
	now              time.Time
	expiry           time.Time         // the earliest expiry time of the current lines; zero if none expires
	expired          time.Time         // the latest one of the lines that do not count any more; zero if there are none
	read             map[string][]byte // what was parsed, by path
}

func (e *elements) problem(err error) { e.problems = append(e.problems, err) }

// parse parses one feature file: lines of the form name or name=value, comments, and directives in comments.
//
//	# +expiry-time=2030-01-01T00:00:00Z   the following lines are valid until then
//	# +no-feature                         the next line is a label only
//	# +no-label                           the next line is a feature only
func (e *elements) parse(origin string, data []byte) {
	var expiry time.Time
	noFeature, noLabel := false, false
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = host.Clean([]byte(line))
		where := fmt.Sprintf("%s:%d", origin, number)
		if comment, ok := strings.CutPrefix(line, "#"); ok {
			directive, ok := strings.CutPrefix(strings.TrimSpace(comment), "+")
			if !ok {
				continue
			}
			switch value, timed := strings.CutPrefix(directive, "expiry-time="); {
			case timed:
				t, err := time.Parse(time.RFC3339, strings.TrimSpace(value))
				if err != nil {
					e.problem(fmt.Errorf("%s: expiry-time %q: write a time such as 2030-01-31T12:00:00Z", where, value))
					continue
				}
				expiry = t
			case directive == "no-feature":
				noFeature = true
			case directive == "no-label":
				noLabel = true
			default:
				e.problem(fmt.Errorf("%s: unknown directive %q: use +expiry-time=, +no-feature or +no-label", where, directive))
			}
			continue
		}
		if line == "" {
			continue
		}
		if expiry.IsZero() || e.now.Before(expiry) {
			e.add(where, line, noFeature, noLabel)
			e.expires(expiry)
		} else if expiry.After(e.expired) {
			e.expired = expiry
		}
		noFeature, noLabel = false, false
	}
}

// expires records the expiry time of a line; zero means never.
func (e *elements) expires(at time.Time) {
	if !at.IsZero() && (e.expiry.IsZero() || at.Before(e.expiry)) {
		e.expiry = at
	}
}

func (e *elements) add(where, line string, noFeature, noLabel bool) {
	name, value, ok := strings.Cut(line, "=")
	if !ok {
		value = "true"
	}
	if name == "" {
		e.problem(fmt.Errorf("%s: %q has no name before the =", where, line))
		return
	}
	if e.prefixes != nil && !slices.ContainsFunc(e.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
		e.problem(fmt.Errorf("%s: %s is ignored: sources.local.filePrefixes does not allow this name in this file", where, name))
		return
	}
	if before, twice := e.from[name]; twice && !sameFile(before, where) {
		e.problem(fmt.Errorf("%s: %s is also set in %s; this line wins", where, name, before))
	}
	e.from[name] = where
	put(e.features, name, value, noFeature)
	put(e.labels, name, value, noLabel)
}

func put(m map[string]string, name, value string, not bool) {
	if not {
		delete(m, name)
		return
	}
	m[name] = value
}

func sameFile(a, b string) bool {
	return a[:strings.LastIndexByte(a, ':')] == b[:strings.LastIndexByte(b, ':')]
}
