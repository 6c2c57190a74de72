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

// SourceTimeout is the maximum duration of one source. A discovery of everything takes about 20 ms; a source that takes seconds
// hangs on a failing disk or a device whose firmware does not respond.
const SourceTimeout = 2 * time.Second

// ErrTimeout is the problem of a source that did not return within SourceTimeout.
var ErrTimeout = errors.New("took longer than " + SourceTimeout.String())

// Run runs all sources once.
func Run(ctx context.Context, h host.Host, sources []Source) *Report {
	return NewRunner(h, sources, Everything).Run(ctx)
}

// Report contains the features and labels of a host, and the problems of discovering them. It must not be modified: later reports
// share parts of it.
type Report struct {
	Features nfdv1alpha1.Features
	// Labels have full names without the default namespace.
	Labels map[string]string
	// Problems are sorted by source and text, so that equal problems result in equal reports.
	Problems []SourceError
	// Changed is set if Features or Labels differ from those of the previous report.
	Changed bool
	// Took is the duration of each source that was run.
	Took map[string]time.Duration
}

// SourceError is something that a source could not read.
type SourceError struct {
	// Source is the name of the source; empty if the error affects several sources.
	Source string
	// Err is the error, with the location.
	Err error
	// Stale is set if the whole source failed and the report contains its previous result.
	Stale bool
}

func (p SourceError) String() string {
	if p.Source == "" && p.Stale {
		return p.Err.Error() + "; the last features are kept"
	} else if p.Source == "" {
		return p.Err.Error() + "; the features that are read there are not published"
	}
	if p.Stale {
		return fmt.Sprintf("source %s: %v; its last good result is kept", p.Source, p.Err)
	}
	return fmt.Sprintf("source %s: %v", p.Source, p.Err)
}

// Runner runs sources and keeps their last results: a source that fails later keeps its last good result, and sources can be run
// separately. It is not safe for concurrent use.
type Runner struct {
	host    host.Host
	sources []*entry
	timeout time.Duration
	// last is the last report, which is returned again if nothing has changed.
	last *Report
}

// entry is a source with its selection and its last result.
type entry struct {
	Source
	features, labels bool
	last             Result
	good             bool
	// labelsFound are the labels that were last validated, labelsFit the valid ones among them.
	labelsFound, labelsFit map[string]string
	labelsRefused          []error
	// glance is the result of Glance just before the last discovery; nil if it failed.
	glance *Result
	// busy is closed when a run that timed out returns; nil if there is none.
	busy chan struct{}
}

// NewRunner returns a Runner of the selected sources. They run in the given order, Derivers after all others.
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

// Run runs the named sources, or all if there are no names, and the Derivers if the result of any of those changed. The report
// contains all sources. Run returns when each source has returned or timed out, or when ctx is done.
func (r *Runner) Run(ctx context.Context, names ...string) *Report {
	return r.run(ctx, names, false)
}

// Poll is Run without an event: it skips Glancers that detect no change.
func (r *Runner) Poll(ctx context.Context, names ...string) *Report {
	return r.run(ctx, names, true)
}

func (r *Runner) run(ctx context.Context, names []string, poll bool) *Report {
	report := &Report{Took: map[string]time.Duration{}}
	found, lost := r.checkMounts(report)
	if found {
		names, poll = nil, false
	}
	for i, e := range r.sources {
		_, derives := e.Source.(Deriver)
		if lost {
			// Not run: its result would be as if the machine had lost its devices.
		} else if derives && (report.Changed || !e.good) || len(names) == 0 || slices.Contains(names, e.Name()) {
			start := time.Now()
			o := r.discover(ctx, e, r.sources[:i], poll)
			report.Took[e.Name()] = time.Since(start)
			switch {
			case o.err != nil:
				e.glance = nil
				report.Problems = append(report.Problems, SourceError{Source: e.Name(), Err: o.err, Stale: e.good})
			case !o.same:
				e.glance = o.glance
				report.Changed = e.take(e.checkLabels(o.result)) || report.Changed
			}
		}
		for _, err := range e.last.Problems {
			report.Problems = append(report.Problems, SourceError{Source: e.Name(), Err: err})
		}
	}
	if report.Changed || r.last == nil {
		report.Features, report.Labels = r.published(), r.labels()
	} else {
		report.Features, report.Labels = r.last.Features, r.last.Labels
	}
	r.last = report
	slices.SortStableFunc(report.Problems, func(a, b SourceError) int {
		return strings.Compare(a.String(), b.String())
	})
	return report
}

// checkMounts reports each of the kernel's file systems that is missing, and whether one that was missing has been found or one that
// was there is lost.
func (r *Runner) checkMounts(report *Report) (found, lost bool) {
	before, now := r.host.NotMounted(), r.host.Checked()
	missing := now.NotMounted()
	lost = r.last != nil && len(missing) > len(before)
	for _, err := range missing {
		report.Problems = append(report.Problems, SourceError{Err: err, Stale: lost})
	}
	if !lost {
		r.host = now
	}
	return len(missing) < len(before), lost
}

// take stores a result, and reports whether it has changed. If it has not, the older maps are kept, so that comparing them again is
// cheap.
func (e *entry) take(result Result) bool {
	if e.good && sameMap(e.last.Labels, result.Labels) && SameFeatures(&e.last.Features, &result.Features) {
		e.last.Problems = result.Problems
		return false
	}
	e.last, e.good = result, true
	return true
}

// discover runs one source in a separate goroutine: a read from a hung device cannot be interrupted, only abandoned. An abandoned
// source is not started again until it has returned, so there is at most one goroutine per source.
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
		if errors.Is(o.err, host.ErrNotMounted) {
			o.err = nil // checkMounts has reported it; the source has no features
		}
	}()
	select {
	case o := <-done:
		if o.err == nil && ctx.Err() != nil {
			// The source finished after its reads failed because of the deadline: its result is incomplete.
			o.err = context.Cause(ctx)
		}
		return o
	case <-ctx.Done():
		e.busy = busy
		return outcome{err: context.Cause(ctx)}
	}
}

// outcome is the result of running one source.
type outcome struct {
	result Result
	err    error
	// glance is the result of Glance, and same is set if it has not changed: then there is no result.
	glance *Result
	same   bool
}

// glance runs Glance, and reports whether its result is unchanged. It runs before the discovery, so that the next glance detects
// changes in between.
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

// checkLabels drops labels that are invalid on a Node, for example if they contain a serial number with a slash, and reports them:
// the API server would reject them together with all others. Validation takes longer than discovery, so it skips labels that have
// not changed.
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

// published merges the features of the selected sources.
func (r *Runner) published() nfdv1alpha1.Features {
	features := emptyFeatures()
	for _, e := range r.sources {
		if e.features {
			merge(&features, &e.last.Features)
		}
	}
	return features
}

// labels merges the labels of the selected sources, lowest priority first.
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

// seenBy returns the features of the preceding sources for a Deriver; nothing for other sources.
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

// merge adds the features of one source to those of others. Sources have separate domains, so names collide only if one source
// extends the domain of another; then flags are united, later attributes overwrite earlier ones, and instances are appended, as NFD
// merges NodeFeatures. merge copies sets before it modifies them, since they belong to a source.
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
