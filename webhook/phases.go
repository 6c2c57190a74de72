package webhook

import (
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

// put keeps the review of rules with a spec, which is empty for an unusual object.
func (p *phases) put(spec string, rule *nfdv1alpha1.NodeFeatureRule, found review.Findings) {
	if spec == "" || len(spec) > maxPassedBytes || rule.Name == "" {
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
	spec, rest, ok := openSpec(raw)
	rule := &nfdv1alpha1.NodeFeatureRule{}
	if !ok || utiljson.Unmarshal(rest, rule) != nil {
		return nil, review.Findings{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	i := slices.IndexFunc(p.kept, func(x passed) bool { return x.name == rule.Name && x.raw == string(spec) })
	if i < 0 {
		return nil, review.Findings{}, false
	}
	x := p.kept[i]
	p.kept = slices.Delete(p.kept, i, i+1)
	rule.Spec = x.spec
	return rule, x.found, true
}
