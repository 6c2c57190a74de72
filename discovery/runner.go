package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

const (
	// SourceTimeout is how long a discovery waits for one source. A discovery of everything takes about 20 ms; a source that takes
	// seconds hangs on a failing disk or a device whose firmware does not respond, or the machine is busy.
	SourceTimeout = 2 * time.Second
	// readTimeout is the time after which a source's reads fail. It is longer than SourceTimeout, so that a source on a busy machine
	// has a result, which the next discovery takes.
	readTimeout = time.Minute
)

// ErrTimeout is the problem of a source that did not return within SourceTimeout.
var ErrTimeout = errors.New("took longer than " + SourceTimeout.String())

var (
	errReads = errors.New("took longer than " + readTimeout.String())
	errBusy  = errors.New("still waiting for an earlier read")
)

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
	// Missing are the sources that have not answered yet: they have returned neither a result nor an error. Unfound are these and
	// those that have returned only errors: nothing is known of them but what was given to Restore. Both are in the order of the sources.
	Missing, Unfound []string
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
	// boot is the ID of the boot; empty: unknown.
	boot string
	// last is the last report, which is returned again if nothing has changed.
	last *Report
	// slow is set while Complete runs: it is called with the name of a source that takes longer than timeout, and then waited for.
	slow func(source string)
	// returned receives a value when a source returns that a discovery did not wait for.
	returned chan struct{}
	// domains are the names of all hardware sources, selected or not. Each owns the labels that begin with its name and "-".
	domains map[string]*entry
	// kept are the labels given to Restore; fresh is set until the next discovery has used what was given.
	kept  map[string]string
	fresh bool
}

// NewRunner returns a Runner of the selected sources. They run in the given order, Derivers after all others.
func NewRunner(h host.Host, sources []Source, sel Selection) *Runner {
	r := &Runner{host: h, timeout: SourceTimeout, returned: make(chan struct{}, 1), domains: map[string]*entry{}}
	for _, s := range sources {
		e := &entry{Source: s, features: sel.Features.Has(s), labels: sel.Labels.Has(s)}
		if e.features || e.labels {
			r.sources = append(r.sources, e)
		}
		if priority(s) == BuiltinPriority {
			r.domains[s.Name()] = e
		}
	}
	slices.SortStableFunc(r.sources, func(a, b *entry) int { return rank(a.Source) - rank(b.Source) })
	return r
}

// Returned receives a value after a source has returned that a discovery did not wait for. The next discovery takes its result, even
// if it does not name the source.
func (r *Runner) Returned() <-chan struct{} { return r.returned }

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

// Complete runs all sources and waits for each of them until ctx is done, as a single answer must: without a source, it would be that of
// a machine without its devices. It calls slow with the name of a source that takes longer than SourceTimeout. The error names the source
// that had not returned when ctx was done.
func (r *Runner) Complete(ctx context.Context, slow func(source string)) (*Report, error) {
	r.slow = slow
	defer func() { r.slow = nil }()
	report := r.run(ctx, nil, false)
	if ctx.Err() == nil {
		return report, nil
	}
	cause := context.Cause(ctx)
	for _, e := range r.sources {
		if errors.Is(e.err, cause) { // the first one: those after it were not read at all
			return nil, fmt.Errorf("source %s %w", e.Name(), cause)
		}
	}
	return report, nil
}

// Poll is Run without an event: it skips Glancers that detect no change.
func (r *Runner) Poll(ctx context.Context, names ...string) *Report {
	return r.run(ctx, names, true)
}

func (r *Runner) run(ctx context.Context, names []string, poll bool) *Report {
	report := &Report{Took: map[string]time.Duration{}, Changed: r.fresh}
	r.fresh = false
	found, lost := r.checkMounts(report)
	report.Changed = r.checkBoot(report) || report.Changed
	if found {
		names, poll = nil, false
	}
	for i, e := range r.sources {
		_, derives := e.Source.(Deriver)
		due := derives && (report.Changed || !e.good) || len(names) == 0 || slices.Contains(names, e.Name())
		start := time.Now()
		if lost {
			// Not run: its result would be as if the machine had lost its devices.
		} else if o, ran := r.next(ctx, e, r.sources[:i], due, poll); ran {
			report.Took[e.Name()] = time.Since(start)
			report.Changed = e.take(o) || report.Changed
		}
		report.Problems = append(report.Problems, e.problems()...)
		if !e.answered {
			report.Missing = append(report.Missing, e.Name())
		}
		if !e.good {
			report.Unfound = append(report.Unfound, e.Name())
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

// published merges the features of the selected sources, and adds the boot and the sources that have not been read.
func (r *Runner) published() nfdv1alpha1.Features {
	features := emptyFeatures()
	for _, e := range r.sources {
		if e.features {
			merge(&features, &e.last.Features)
		}
	}
	r.nameBoot(&features)
	nameUnread(&features, r.sources)
	return features
}

// nameUnread adds the feature that names the selected sources of which nothing is known since the node booted: they have no result, and there
// was none to restore, or they derive theirs from such sources.
func nameUnread(features *nfdv1alpha1.Features, sources []*entry) {
	unread := map[string]nfdv1alpha1.Nil{}
	for _, e := range sources {
		if _, derives := e.Source.(Deriver); !e.good && !e.restored || derives && len(unread) > 0 {
			unread[e.Name()] = nfdv1alpha1.Nil{}
		}
	}
	if len(unread) > 0 {
		features.Flags[nfdv1alpha1.UnreadFeature] = nfdv1alpha1.FlagFeatureSet{Elements: unread}
	}
}

// labels merges the labels of the selected sources, lowest priority first. Labels that are kept override those of rules, which lack
// the features of a source that has not answered.
func (r *Runner) labels() map[string]string {
	byPriority := slices.Clone(r.sources)
	slices.SortStableFunc(byPriority, func(a, b *entry) int { return priority(a.Source) - priority(b.Source) })
	labels := map[string]string{}
	add := func(from, below int) {
		for _, e := range byPriority {
			if p := priority(e.Source); e.labels && p >= from && p < below {
				maps.Copy(labels, e.last.Labels)
			}
		}
	}
	add(math.MinInt, LocalPriority)
	maps.Copy(labels, r.keep())
	add(LocalPriority, math.MaxInt)
	return labels
}

func priority(s Source) int {
	if p, ok := s.(Prioritized); ok {
		return p.LabelPriority()
	}
	return BuiltinPriority
}

func emptyFeatures() nfdv1alpha1.Features { return NewResult().Features }

// seenBy returns the features of the preceding sources, and the boot, for a Deriver; nothing for other sources.
func (r *Runner) seenBy(s Source, earlier []*entry) *nfdv1alpha1.Features {
	if _, ok := s.(Deriver); !ok {
		return nil
	}
	found := emptyFeatures()
	for _, e := range earlier {
		merge(&found, &e.last.Features)
	}
	r.nameBoot(&found)
	nameUnread(&found, earlier)
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
