package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// entry is a source with its selection and its last result.
type entry struct {
	Source
	features, labels bool
	// last is the last good result, or what was given to Restore, or nothing. err is the error of the last run; nil if it succeeded.
	last Result
	err  error
	// good is set once last is a result of this process, restored if it was given to Restore, answered after a result or an error.
	good, restored, answered bool
	// labelsFound are the labels that were last validated, labelsFit the valid ones among them.
	labelsFound, labelsFit map[string]string
	labelsRefused          []error
	// glance is the result of Glance just before the last discovery; nil if it failed.
	glance *Result
	// running has the outcome of a run that a discovery did not wait for, when the source returns; nil if there is none. missed is set
	// if the source should have been run meanwhile.
	running chan outcome
	missed  bool
}

// take stores an outcome, and reports whether it has changed the result. If it has not, the older maps are kept, so that comparing
// them again is cheap.
func (e *entry) take(o outcome) bool {
	e.err = o.err
	if o.err != nil {
		e.glance = nil
		late := errors.Is(o.err, ErrTimeout) || errors.Is(o.err, errReads) || errors.Is(o.err, errBusy) || errors.Is(o.err, context.Canceled)
		e.answered = e.answered || !late
		return false
	}
	e.answered = true
	if o.same {
		return false
	}
	e.glance = o.glance
	result := e.checkLabels(o.result)
	if e.good && sameMap(e.last.Labels, result.Labels) && SameFeatures(&e.last.Features, &result.Features) {
		e.last.Problems = result.Problems
		return false
	}
	e.last, e.good, e.restored = result, true, false
	return true
}

// problems returns the error of the last run and the problems of the last result.
func (e *entry) problems() []SourceError {
	var out []SourceError
	if e.err != nil {
		out = append(out, SourceError{Source: e.Name(), Err: e.err, Stale: e.good || e.restored})
	}
	for _, err := range e.last.Problems {
		out = append(out, SourceError{Source: e.Name(), Err: err})
	}
	return out
}

// next runs a source if it is due, and reports whether there is an outcome: also that of an earlier run that has returned meanwhile.
// An abandoned source is not started again until it has returned, so there is at most one run of each source.
func (r *Runner) next(ctx context.Context, e *entry, earlier []*entry, due, poll bool) (outcome, bool) {
	var late *outcome
	if e.running != nil {
		select {
		case o := <-e.running:
			late, e.running = &o, nil
			due = due || e.missed // it may have read too early
		default:
			e.missed = e.missed || due
			return outcome{err: errBusy}, due
		}
	}
	if !due {
		if late == nil {
			return outcome{}, false
		}
		return *late, true
	}
	e.missed = false
	o := r.discover(ctx, e, earlier, poll)
	if late != nil && late.err == nil && errors.Is(o.err, ErrTimeout) {
		return *late, true
	}
	return o, true
}

// discover runs one source in a separate goroutine: a read from a hung device cannot be interrupted, only abandoned.
func (r *Runner) discover(ctx context.Context, e *entry, earlier []*entry, poll bool) outcome {
	timeout := r.timeout
	if p, ok := e.Source.(Patient); ok {
		timeout = max(timeout, p.Timeout())
	}
	waiting, stop := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer stop()
	reading, cancel := r.reads(ctx, timeout)

	done, left := make(chan outcome, 1), make(chan struct{})
	seen := r.seenBy(e.Source, earlier)
	before, h := e.glance, r.host.WithContext(reading)
	go func() {
		defer cancel()
		done <- outcomeOf(reading, e.Source, h, before, seen, poll)
		select {
		case <-left:
			select {
			case r.returned <- struct{}{}:
			default: // one that was not received yet is enough
			}
		default:
		}
	}()
	select {
	case o := <-done:
		return o
	case <-waiting.Done():
	}
	if r.slow != nil && ctx.Err() == nil {
		r.slow(e.Name())
		select {
		case o := <-done:
			return o
		case <-ctx.Done():
			waiting = ctx
		}
	}
	close(left) // first: after this the goroutine announces what it returns
	select {
	case o := <-done: // the whole process was slow, not the source
		return o
	default:
		e.running = done
		return outcome{err: context.Cause(waiting)}
	}
}

// reads returns the context of a source's reads. While Complete runs, they end with it.
func (r *Runner) reads(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if r.slow != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, max(timeout, readTimeout), errReads)
}

// outcomeOf runs a source, and returns what it panics with as an error.
func outcomeOf(ctx context.Context, s Source, h host.Host, before *Result, seen *nfdv1alpha1.Features, poll bool) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{err: fmt.Errorf("defect in the source: %v", p)}
		}
	}()
	o.glance, o.same = glance(ctx, s, h, before)
	if o.same = o.same && poll; !o.same {
		o.result, o.err = call(ctx, s, h, seen)
	}
	if errors.Is(o.err, host.ErrNotMounted) {
		o.err = nil // checkMounts has reported it; the source has no features
	}
	if ctx.Err() != nil {
		o.err = context.Cause(ctx) // its reads failed because of the deadline: what it returns is incomplete
	}
	return o
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
