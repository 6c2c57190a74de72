package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// SourceTimeout bounds one source. A discovery of everything takes some 20 ms; what takes seconds hangs, on a dying disk
// or a device whose firmware does not answer.
const SourceTimeout = 2 * time.Second

// ErrTimeout is the problem of a source that did not end within SourceTimeout.
var ErrTimeout = errors.New("took longer than " + SourceTimeout.String())

// Run discovers everything once.
func Run(ctx context.Context, h host.Host, sources []Source) *Report {
	return NewRunner(h, sources, Everything).Run(ctx)
}

// Report is the features and labels of a host, and what could not be found out. It must not be modified: a Runner hands
// out parts of it again.
type Report struct {
	Features nfdv1alpha1.Features
	// Labels have full names without the default namespace.
	Labels map[string]string
	// Problems are sorted by source and text, so that equal problems make equal reports.
	Problems []Problem
	// Changed says that Features or Labels differ from those of the report before.
	Changed bool
	// Took is how long each source that ran now took.
	Took map[string]time.Duration
}

// Problem is something that a source could not find out.
type Problem struct {
	// Source is the name of the source.
	Source string
	// Err says what and where.
	Err error
	// Stale says that the source as a whole failed and that what it found before is still in the report.
	Stale bool
}

func (p Problem) String() string {
	if p.Stale {
		return fmt.Sprintf("source %s: %v; its last good result is kept", p.Source, p.Err)
	}
	return fmt.Sprintf("source %s: %v", p.Source, p.Err)
}

// Runner runs sources and remembers what each found last: a source that fails later keeps its last good result, and
// single sources can be run again without the others. It is not safe for concurrent use.
type Runner struct {
	host    host.Host
	sources []*entry
	timeout time.Duration
	// last is what was reported last: as long as nothing has changed it need not be put together again.
	last *Report
}

// entry is a source with its selection and what it found last.
type entry struct {
	Source
	features, labels bool
	last             Result
	good             bool
	// labelsFound are those that were checked last, labelsFit those of them that a Node can have.
	labelsFound, labelsFit map[string]string
	labelsRefused          []error
	// glance is what a Glancer saw just before its last discovery; nil if that failed.
	glance *Result
	// busy is closed by the goroutine of a run that was given up; nil if there is none.
	busy chan struct{}
}

// NewRunner returns a Runner of the sources that the selection names. Sources run in the given order, Derivers after all
// others.
func NewRunner(h host.Host, sources []Source, sel Selection) *Runner {
	r := &Runner{host: h, timeout: SourceTimeout}
	for _, s := range sources {
		e := &entry{Source: s, features: sel.Features.has(s), labels: sel.Labels.has(s)}
		if e.features || e.labels {
			r.sources = append(r.sources, e)
		}
	}
	slices.SortStableFunc(r.sources, func(a, b *entry) int { return rank(a.Source) - rank(b.Source) })
	return r
}

func rank(s Source) int {
	if _, derives := s.(Deriver); derives {
		return 1
	}
	return 0
}

// Run runs the sources of the given names again, or all without names, and the Derivers if one of those found something new;
// the report is of all sources. It returns when each has ended or is over its time, or when ctx is done.
func (r *Runner) Run(ctx context.Context, names ...string) *Report {
	return r.run(ctx, names, false)
}

// Poll is Run for when no event has told of a change: it leaves out those Glancers that see nothing new.
func (r *Runner) Poll(ctx context.Context, names ...string) *Report {
	return r.run(ctx, names, true)
}

func (r *Runner) run(ctx context.Context, names []string, poll bool) *Report {
	report := &Report{Took: map[string]time.Duration{}}
	for i, e := range r.sources {
		_, derives := e.Source.(Deriver)
		if derives && (report.Changed || !e.good) || len(names) == 0 || slices.Contains(names, e.Name()) {
			start := time.Now()
			o := r.discover(ctx, e, r.sources[:i], poll)
			report.Took[e.Name()] = time.Since(start)
			switch {
			case o.err != nil:
				e.glance = nil
				report.Problems = append(report.Problems, Problem{Source: e.Name(), Err: o.err, Stale: e.good})
			case !o.same:
				e.glance = o.glance
				report.Changed = e.take(e.checkLabels(o.result)) || report.Changed
			}
		}
		for _, err := range e.last.Problems {
			report.Problems = append(report.Problems, Problem{Source: e.Name(), Err: err})
		}
	}
	if report.Changed || r.last == nil {
		report.Features, report.Labels = r.published(), r.labels()
	} else {
		report.Features, report.Labels = r.last.Features, r.last.Labels
	}
	r.last = report
	slices.SortStableFunc(report.Problems, func(a, b Problem) int {
		return strings.Compare(a.String(), b.String())
	})
	return report
}

// take remembers a result, and reports whether it is new. Of equal ones the older is kept, so that what was handed out stays
// the same maps, and comparing them again costs nothing.
func (e *entry) take(result Result) bool {
	if e.good && sameMap(e.last.Labels, result.Labels) && SameFeatures(&e.last.Features, &result.Features) {
		e.last.Problems = result.Problems
		return false
	}
	e.last, e.good = result, true
	return true
}

// discover runs one source in a goroutine of its own: a read of a hung device cannot be interrupted, only left behind. A
// source that was left behind is not started again before it has come back, so there is never more than one goroutine for
// each source.
func (r *Runner) discover(ctx context.Context, e *entry, earlier []*entry, poll bool) outcome {
	if e.busy != nil {
		select {
		case <-e.busy:
			e.busy = nil
		default:
			return outcome{err: errors.New("still waiting for an earlier read")}
		}
	}
	timeout := r.timeout
	if p, ok := e.Source.(Patient); ok {
		timeout = max(timeout, p.Timeout())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()

	done := make(chan outcome, 1)
	busy := make(chan struct{})
	seen := seenBy(e.Source, earlier)
	before := e.glance
	go func() {
		defer close(busy)
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o = outcome{err: fmt.Errorf("defect in the source: %v", p)}
			}
			done <- o
		}()
		o.glance, o.same = glance(ctx, e.Source, r.host.WithContext(ctx), before)
		if o.same = o.same && poll; o.same {
			return
		}
		o.result, o.err = call(ctx, e.Source, r.host.WithContext(ctx), seen)
	}()
	select {
	case o := <-done:
		if o.err == nil && ctx.Err() != nil {
			// The source went on to its end with reads that the deadline refused: what it found is not whole.
			o.err = context.Cause(ctx)
		}
		return o
	case <-ctx.Done():
		e.busy = busy
		return outcome{err: context.Cause(ctx)}
	}
}

// outcome is what came of running one source.
type outcome struct {
	result Result
	err    error
	// glance is what a Glancer saw before, and same whether that was enough: then there is no result.
	glance *Result
	same   bool
}

// glance looks at what may have changed, and reports whether it has not. It comes before the discovery, so that what changes
// in between is seen by the next one.
func glance(ctx context.Context, s Source, h host.Host, before *Result) (*Result, bool) {
	g, ok := s.(Glancer)
	if !ok {
		return nil, false
	}
	now, ok := g.Glance(ctx, h)
	if !ok {
		return nil, false
	}
	return &now, before != nil && SameFeatures(&before.Features, &now.Features) && sameProblems(before.Problems, now.Problems)
}

func sameProblems(a, b []error) bool {
	return slices.EqualFunc(a, b, func(a, b error) bool { return a.Error() == b.Error() })
}

// checkLabels drops the labels that no Node can have, such as one made of a serial number with a slash in it, and says so:
// the API server would refuse them together with all the others. Checking costs more than finding, so labels that are the
// same as those before are not checked again.
func (e *entry) checkLabels(r Result) Result {
	if e.labelsFit == nil || !sameMap(e.labelsFound, r.Labels) {
		e.labelsFound = r.Labels
		e.labelsFit, e.labelsRefused = validLabels(r.Labels)
	}
	r.Labels = e.labelsFit
	r.Problems = append(slices.Clip(r.Problems), e.labelsRefused...)
	return r
}

func validLabels(found map[string]string) (fit map[string]string, refused []error) {
	fit = make(map[string]string, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		value := found[name]
		why := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...)
		if len(why) == 0 {
			fit[name] = value
			continue
		}
		refused = append(refused, fmt.Errorf("ignored label %.200q with value %.200q: %s", name, value, why[0]))
	}
	return fit, refused
}

func call(ctx context.Context, s Source, h host.Host, found *nfdv1alpha1.Features) (Result, error) {
	if d, ok := s.(Deriver); ok {
		return d.Derive(ctx, h, found)
	}
	return s.Discover(ctx, h)
}

// published merges the features of the sources that publish them.
func (r *Runner) published() nfdv1alpha1.Features {
	features := emptyFeatures()
	for _, e := range r.sources {
		if e.features {
			merge(&features, &e.last.Features)
		}
	}
	return features
}

// labels merges the labels of the sources that publish them, the lowest priority first.
func (r *Runner) labels() map[string]string {
	byPriority := slices.Clone(r.sources)
	slices.SortStableFunc(byPriority, func(a, b *entry) int { return priority(a.Source) - priority(b.Source) })
	labels := map[string]string{}
	for _, e := range byPriority {
		if e.labels {
			maps.Copy(labels, e.last.Labels)
		}
	}
	return labels
}

func priority(s Source) int {
	if p, ok := s.(Prioritized); ok {
		return p.LabelPriority()
	}
	return BuiltinPriority
}

func emptyFeatures() nfdv1alpha1.Features { return NewResult().Features }

// seenBy returns what a Deriver sees of the sources before it; other sources do not look.
func seenBy(s Source, earlier []*entry) *nfdv1alpha1.Features {
	if _, ok := s.(Deriver); !ok {
		return nil
	}
	found := emptyFeatures()
	for _, e := range earlier {
		merge(&found, &e.last.Features)
	}
	return &found
}

// merge adds the features of one source to those of others. Sources have domains of their own, so sets of one name meet
// only where one source carries on another's domain; then flags are united, of two attributes the later wins, instances
// are appended, as NFD merges NodeFeatures. The sets that are merged into are copied first: they belong to a source.
func merge(into, from *nfdv1alpha1.Features) {
	for name, set := range from.Flags {
		if old, ok := into.Flags[name]; ok {
			set.Elements = union(old.Elements, set.Elements)
		}
		into.Flags[name] = set
	}
	for name, set := range from.Attributes {
		if old, ok := into.Attributes[name]; ok {
			set.Elements = union(old.Elements, set.Elements)
		}
		into.Attributes[name] = set
	}
	for name, set := range from.Instances {
		if old, ok := into.Instances[name]; ok {
			set.Elements = slices.Concat(old.Elements, set.Elements)
		}
		into.Instances[name] = set
	}
}

func union[V any](a, b map[string]V) map[string]V {
	out := make(map[string]V, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
