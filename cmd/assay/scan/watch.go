package scan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/utils/clock"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/featuretable"
	"github.com/assay-project/assay/cmd/assay/internal/machine"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/discovery/watch"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

// pollInterval is the interval at which all sources run, because not all changes cause events.
const pollInterval = 15 * time.Second

// watchHost watches the host until ctx is done. It calls changed with the sources to run again; nil means all sources.
func watchHost(ctx context.Context, w io.Writer, changed func(context.Context, []string)) error {
	h, problems := watch.Open([]watch.Target{{Path: "/" + machine.FeaturesDir, Source: local.Name}})
	for _, p := range problems {
		fmt.Fprintln(w, "note:", p)
	}
	in, out := make(chan string), make(chan []string)
	go watch.Debounce(ctx, clock.RealClock{}, in, out)
	go h.Run(ctx, func(source string) {
		select {
		case in <- source:
		case <-ctx.Done():
		}
	})
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			changed(ctx, nil)
		case names := <-out:
			if slices.Contains(names, watch.Everything) {
				names = nil
			}
			changed(ctx, names)
		}
	}
}

// printChanges prints one line per element that was added, removed or changed.
func printChanges(w io.Writer, before, after *nfdv1alpha1.Features) {
	old, now := flatten(before), flatten(after)
	at := time.Now().Format(time.TimeOnly)
	s := printer.StyleOf(w)
	for _, key := range facts.SortedKeys(old) {
		if _, ok := now[key]; !ok {
			fmt.Fprintf(w, "%s %s\n", at, s.Bad("- "+clip.Printable(printer.Line(key, old[key]))))
		}
	}
	for _, key := range facts.SortedKeys(now) {
		was, ok := old[key]
		switch {
		case !ok:
			fmt.Fprintf(w, "%s %s\n", at, s.Good("+ "+clip.Printable(printer.Line(key, now[key]))))
		case was != now[key]:
			fmt.Fprintf(w, "%s %s\n", at, s.Warn("~ "+clip.Printable(printer.Line(key, was)+" -> "+now[key])))
		}
	}
}

// flatten returns the values of all flags, attributes and instances by unique names.
func flatten(f *nfdv1alpha1.Features) map[string]string {
	out := map[string]string{}
	for name, set := range f.Flags {
		for flag := range set.Elements {
			out[name+"/"+flag] = ""
		}
	}
	for name, set := range f.Attributes {
		for key, value := range set.Elements {
			out[name+"/"+key] = value
		}
	}
	for name, set := range f.Instances {
		seen := map[string]int{}
		for _, e := range set.Elements {
			text := featuretable.InstanceText(e.Attributes)
			seen[text]++
			if n := seen[text]; n > 1 {
				text = fmt.Sprintf("%s (%d)", text, n)
			}
			out[name+": "+text] = ""
		}
	}
	return out
}
