//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/assay-project/assay/test/stage"
)

const (
	// samples is the number of lines that a soak prints, at most one every sampleInterval.
	samples        = 40
	sampleInterval = 15 * time.Second
	// editInterval is the time between two changes of rules.
	editInterval = 20 * time.Second
	// restartsAt is the fraction of the time after which all programs are restarted, one after another. Slopes are those of the time
	// after it.
	restartsAt = 0.25
	// warmUp is the fraction of a program's life that does not count for its slope.
	warmUp = 0.2
)

// measures are the metrics of each program. Live heap is what the last garbage collection found in use; the runtime collects at
// least every two minutes.
var measures = []struct{ title, metric string }{
	{"live heap", "go_gc_heap_live_bytes"},
	{"goroutines", "go_goroutines"},
	{"descriptors", "process_open_fds"},
}

// sample is a measurement of one program.
type sample struct {
	at     time.Duration // since the begin
	values [3]float64    // as measures
}

// soak is a long run without faults: facts and rules change all the time. Unless it is steady, workers and programs are restarted;
// else a real worker runs, too, and the memory of the processes is compared.
type soak struct {
	*run
	begin    time.Time
	duration time.Duration
	series   map[string][]sample // by program, since its last start
}

// soak runs for some time, and prints what the programs use.
func (w *world) soak(ctx context.Context, d time.Duration) error {
	if w.steady {
		if err := w.startWorker(ctx); err != nil {
			return err
		}
	}
	s := &soak{
		run: newRun(w, false), begin: time.Now(), duration: d, series: map[string][]sample{},
	}
	running, stop := context.WithTimeout(ctx, d)
	defer stop()
	changing := make(chan error, 1)
	go func() { changing <- w.changes(ctx, d) }()
	editing := make(chan error, 1)
	go func() { editing <- s.edits(running) }()
	working, comparing := make(chan error, 1), make(chan error, 1)
	if w.steady {
		go func() { working <- w.changeWorker(running) }()
		go func() { comparing <- s.compareMemory(running) }()
	} else {
		close(working)
		close(comparing)
	}
	err := s.observe(running)
	stop()
	if err = errors.Join(err, <-changing, <-editing, <-working, <-comparing); err == nil {
		err = w.settle(ctx)
	}
	s.slopes()
	violations, versions := w.checker.Violations()
	w.say("%d nodes for %s: %d versions of Nodes checked, %d violations, %d workers ended, %d failed attempts to publish",
		len(w.nodes), d, versions, len(violations), w.fleet.Exits(), w.fleet.Failed())
	if len(violations) > 0 {
		err = errors.Join(violated(violations), err)
	}
	return err
}

// edits edits, creates and deletes rules, and replaces workers unless the soak is steady, until the context ends.
func (s *soak) edits(ctx context.Context) error {
	steps := []func(context.Context) error{s.edit, s.create, s.remove}
	if !s.steady {
		steps = append(steps, s.replaceWorkers)
	}
	for i := 0; stage.Sleep(ctx, editInterval) == nil; i++ {
		if err := s.persist(context.WithoutCancel(ctx), steps[i%len(steps)]); err != nil {
			return err
		}
	}
	return nil
}

// replaceWorkers restarts one in a hundred workers.
func (s *soak) replaceWorkers(ctx context.Context) error {
	some := pick(s.rand, s.nodes, 1+len(s.nodes)/100)
	s.fleet.End(some)
	return s.launch(ctx, some, s.rand.IntN(1<<30))
}

// observe prints samples until the context ends, and restarts the programs once unless the soak is steady.
func (s *soak) observe(ctx context.Context) error {
	var header []string
	for _, name := range programNames {
		header = append(header, name+" MB/goroutines/files")
	}
	s.say("%8s  %s", "time", strings.Join(header, "  "))
	restarted := s.steady
	for stage.Sleep(ctx, max(s.duration/samples, sampleInterval)) == nil {
		now := time.Since(s.begin)
		if !restarted && now.Seconds() > restartsAt*s.duration.Seconds() {
			restarted = true
			if err := s.restartAll(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			continue
		}
		s.sample(ctx, now)
	}
	return nil
}

func (s *soak) restartAll(ctx context.Context) error {
	for _, name := range programNames {
		p := s.programs[name]
		end := func() error { return s.Terminate(ctx, name) }
		if err := errors.Join(p.end(end), p.start(ctx), p.ready(ctx)); err != nil {
			return err
		}
		delete(s.series, name)
	}
	s.say("%8s  all programs restarted, one after another", time.Since(s.begin).Round(time.Second))
	return nil
}

func (s *soak) sample(ctx context.Context, now time.Duration) {
	var cells []string
	for _, name := range programNames {
		one := sample{at: now}
		var failed error
		for i, m := range measures {
			var err error
			one.values[i], err = s.programs[name].gauge(ctx, m.metric)
			failed = errors.Join(failed, err)
		}
		if failed != nil {
			cells = append(cells, fmt.Sprintf("%*s", len(name+" MB/goroutines/files"), "no answer"))
			continue
		}
		s.series[name] = append(s.series[name], one)
		cells = append(cells, fmt.Sprintf("%*s", len(name+" MB/goroutines/files"), fmt.Sprintf("%.2f/%.0f/%.0f", one.values[0]/1e6, one.values[1], one.values[2])))
	}
	s.say("%8s  %s", now.Round(time.Second), strings.Join(cells, "  "))
}

// slopes prints the trend of each measure since the last start.
func (s *soak) slopes() {
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "\nprogram\tsamples\tlive heap MB, first\tlast\tslope MB a day\tgoroutines, first\tlast\tdescriptors, first\tlast\t")
	for _, name := range programNames {
		all := s.series[name]
		all = all[int(warmUp*float64(len(all))):]
		if len(all) == 0 {
			_, _ = fmt.Fprintf(t, "%s\t0\t\n", name)
			continue
		}
		first, last := all[0].values, all[len(all)-1].values
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, len(all),
			first[0]/1e6, last[0]/1e6, slope(all)*(24*time.Hour).Seconds()/1e6, first[1], last[1], first[2], last[2])
	}
	_ = t.Flush()
}

// slope returns the growth of the live heap in bytes a second, by least squares.
func slope(all []sample) float64 {
	n := float64(len(all))
	var x, y, xx, xy float64
	for _, one := range all {
		at, v := one.at.Seconds(), one.values[0]
		x, y, xx, xy = x+at, y+v, xx+at*at, xy+at*v
	}
	if d := n*xx - x*x; d != 0 {
		return (n*xy - x*y) / d
	}
	return 0
}
