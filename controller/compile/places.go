package compile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/settings"
)

// RequestLimits limits the number of NodeFeatureRequests that are materialized.
type RequestLimits = settings.MaterializedRequests

// The number of requests of a namespace that begin to be materialized within a time. Limits bound how many labels there are; this
// bounds how often they come and go, each time with a write of every Node that matches: a request that is created and deleted in a
// loop writes each Node at most 12 times an hour.
const (
	maxBeginnings   = 6
	beginningWindow = time.Hour
)

// candidate is a request that can be materialized: it exists, and its requirements are valid and readable.
type candidate struct {
	rule string // the name of its rule
	meta metav1.ObjectMeta
	of   identity
	// labeled is the time since which the status reports the label; zero: it does not.
	labeled time.Time
}

// identity changes if a request has another label or gives it to other nodes.
type identity struct {
	uid      types.UID
	required requirements.Key
}

// place is the place that a candidate takes within the limits.
type place struct {
	of identity
	// until is the time until which it waits for others that began to be materialized; zero: it is materialized.
	until time.Time
}

// places decides which requests are materialized. It is not safe for concurrent use.
type places struct {
	limits     RequestLimits
	now        func() time.Time
	loaded     bool                   // all requests that existed at the start are candidates
	candidates []candidate            // the oldest first
	taken      map[string]place       // by the name of the rule
	begun      map[string][]time.Time // by namespace: the beginnings within beginningWindow, the oldest first
	changed    map[string]bool        // the rules whose place changed since the last drain
}

func newPlaces(limits RequestLimits) *places {
	return &places{
		limits: limits, now: time.Now, taken: map[string]place{}, begun: map[string][]time.Time{}, changed: map[string]bool{},
	}
}

// put adds or replaces a candidate. Until places are loaded, a candidate that the status calls materialized keeps its place: the
// controller that ran before gave it.
func (p *places) put(c candidate) {
	if !p.loaded && !c.labeled.IsZero() {
		p.taken[c.rule] = place{of: c.of}
		i, _ := slices.BinarySearchFunc(p.begun[c.meta.Namespace], c.labeled, time.Time.Compare)
		p.begun[c.meta.Namespace] = slices.Insert(p.begun[c.meta.Namespace], i, c.labeled)
	}
	p.drop(c.rule)
	i, _ := slices.BinarySearchFunc(p.candidates, c, func(a, b candidate) int { return assembly.OldestFirst(&a.meta, &b.meta) })
	p.candidates = slices.Insert(p.candidates, i, c)
}

// drop removes the request that a rule materializes, if it is a candidate.
func (p *places) drop(rule string) {
	p.candidates = slices.DeleteFunc(p.candidates, func(c candidate) bool { return c.rule == rule })
}

// decide assigns the places again.
func (p *places) decide() {
	now := p.now()
	for namespace, times := range p.begun {
		times = slices.DeleteFunc(times, func(t time.Time) bool { return !t.Add(beginningWindow).After(now) })
		if p.begun[namespace] = times; len(times) == 0 {
			delete(p.begun, namespace)
		}
	}
	taken, counts := map[string]place{}, map[string]int{}
	for i := range p.candidates {
		c := &p.candidates[i]
		if len(taken) >= p.limits.Total {
			break
		}
		if p.limits.PerNamespace > 0 && counts[c.meta.Namespace] >= p.limits.PerNamespace {
			continue
		}
		counts[c.meta.Namespace]++
		taken[c.rule] = p.place(c, now)
		if taken[c.rule] != p.taken[c.rule] {
			p.changed[c.rule] = true
		}
	}
	for rule := range p.taken {
		if _, ok := taken[rule]; !ok {
			p.changed[rule] = true
		}
	}
	p.taken = taken
}

// place returns the place of a candidate that is within the limits. If it begins to be materialized, place remembers that.
func (p *places) place(c *candidate, now time.Time) place {
	was, before := p.taken[c.rule], p.begun[c.meta.Namespace]
	switch {
	case was.of == c.of && was.until.IsZero():
		return was
	case len(before) >= maxBeginnings:
		return place{c.of, before[len(before)-maxBeginnings].Add(beginningWindow)}
	default:
		p.begun[c.meta.Namespace] = append(before, now)
	}
	return place{of: c.of}
}

// refusal returns why a candidate is not materialized, or nil.
func (p *places) refusal(rule string) *assembly.Error {
	switch place, ok := p.taken[rule]; {
	case !ok:
		return &assembly.Error{Reason: ReasonTooManyRequests, Message: fmt.Sprintf(
			"older requests take all %d places of the cluster, or all %d of the namespace; ask your administrator to raise materializedRequests",
			p.limits.Total, cmp.Or(p.limits.PerNamespace, p.limits.Total))}
	case !place.until.IsZero():
		return &assembly.Error{Reason: ReasonTooOften, Message: fmt.Sprintf(
			"%d requests of the namespace began to be materialized within an hour, each with a write of all nodes that match; this one begins at %s",
			maxBeginnings, place.until.UTC().Format(time.TimeOnly+"Z"))}
	}
	return nil
}

// drain returns the sorted rules whose place changed since the last call.
func (p *places) drain() []string {
	var out []string
	for rule := range p.changed {
		out = append(out, rule)
	}
	clear(p.changed)
	slices.Sort(out)
	return out
}

// wait returns the time until the next request begins that waits; 0: none waits.
func (p *places) wait() (next time.Duration) {
	for _, place := range p.taken {
		if !place.until.IsZero() {
			if d := max(place.until.Sub(p.now()), time.Millisecond); next == 0 || d < next {
				next = d
			}
		}
	}
	return next
}
