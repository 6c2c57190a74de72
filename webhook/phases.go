package webhook

import (
	"bytes"
	"slices"
	"sync"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// The limits of what a review in mutating admission leaves for the one in validating admission.
const (
	// maxPassed is the maximum number of reviews that are kept: the API server asks again within milliseconds.
	maxPassed = 4
	// maxPassedBytes is the maximum size of an object in bytes whose review is kept. Compiled rules take several times as much memory.
	maxPassedBytes = 64 << 10
	// passedFor is how long a review is kept: as long as an API server waits for other webhooks in between. What changes in the
	// cluster during this time, such as a template, is in the review of the controller.
	passedFor = defaultDeadline
)

// phases hands the review of a NodeFeatureRule in mutating admission to validating admission, where the API server sends the same
// spec again. Each is used once. It is safe for concurrent use.
type phases struct {
	mu   sync.Mutex
	kept []passed // in the order of their arrival
}

type passed struct {
	name  string
	raw   string // the spec in JSON
	spec  nfdv1alpha1.NodeFeatureRuleSpec
	found review.Findings
	until time.Time
}

// split returns the spec of an object and the object without it, without decoding them: decoding takes longer than the rest of the review in
// validating admission. In between, only the rest can change.
func split(raw []byte) (spec string, rest []byte, ok bool) {
	i := bytes.IndexByte(raw, '{') + 1
	for i > 0 && i < len(raw) && raw[i] != '}' {
		colon := endOf(raw, i, ':')
		end := endOf(raw, min(colon+1, len(raw)), ',')
		if string(bytes.TrimSpace(raw[i:colon])) == `"spec"` {
			return string(raw[colon+1 : end]), slices.Concat(raw[:colon+1], []byte("null"), raw[end:]), true
		}
		i = end + 1
	}
	return "", nil, false
}

// endOf returns the index of the next stop after i outside of strings and nested values, or of what closes the enclosing object.
func endOf(raw []byte, i int, stop byte) int {
	for depth := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
		case stop:
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}

// put keeps a review.
func (p *phases) put(raw []byte, rule *nfdv1alpha1.NodeFeatureRule, found review.Findings) {
	if len(raw) > maxPassedBytes || rule.Name == "" {
		return
	}
	spec, _, ok := split(raw)
	if !ok {
		return
	}
	found.Warnings = slices.Clip(found.Warnings) // a review of an update appends to them
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	p.kept = append(p.kept, passed{rule.Name, spec, rule.Spec, found, time.Now().Add(passedFor)})
	if len(p.kept) > maxPassed {
		p.kept = slices.Delete(p.kept, 0, 1)
	}
}

// expire forgets reviews that are too old.
func (p *phases) expire() {
	now := time.Now()
	p.kept = slices.DeleteFunc(p.kept, func(x passed) bool { return now.After(x.until) })
}

// take returns the object and its review, if there is one, and forgets it.
func (p *phases) take(raw []byte) (*nfdv1alpha1.NodeFeatureRule, review.Findings, bool) {
	if len(raw) > maxPassedBytes {
		return nil, review.Findings{}, false
	}
	spec, rest, ok := split(raw)
	rule := &nfdv1alpha1.NodeFeatureRule{}
	if !ok || utiljson.Unmarshal(rest, rule) != nil {
		return nil, review.Findings{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	i := slices.IndexFunc(p.kept, func(x passed) bool { return x.name == rule.Name && x.raw == spec })
	if i < 0 {
		return nil, review.Findings{}, false
	}
	x := p.kept[i]
	p.kept = slices.Delete(p.kept, i, i+1)
	rule.Spec = x.spec
	return rule, x.found, true
}
