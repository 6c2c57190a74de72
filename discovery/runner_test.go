package discovery

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// fake is a source controlled by a test.
type fake struct {
	name     string
	priority int
	find     func(ctx context.Context) (Result, error)
}

func (f *fake) Name() string       { return f.name }
func (f *fake) LabelPriority() int { return f.priority }
func (f *fake) Discover(ctx context.Context, _ host.Host) (Result, error) {
	return f.find(ctx)
}

// deriver copies the names of the visible flags to a label.
type deriver struct{ *fake }

func (d deriver) Derive(_ context.Context, _ host.Host, found *nfdv1alpha1.Features) (Result, error) {
	r := NewResult()
	for name := range found.Flags {
		r.Labels["saw-"+name] = "true"
	}
	return r, nil
}

type supplemental struct{ *fake }

func (supplemental) Supplemental() {}

// finds returns a source that finds one flag and one label.
func finds(name, label, value string) *fake {
	return &fake{name: name, find: func(context.Context) (Result, error) {
		r := NewResult()
		r.Flags(name+".flag", []string{"f"})
		r.Labels[label] = value
		return r, nil
	}}
}

func TestFailingSourceKeepsItsLastGoodResult(t *testing.T) {
	src := finds("a", "l", "good")
	r := NewRunner(host.Host{}, []Source{src, finds("b", "m", "1")}, Everything)
	r.Run(t.Context())
	src.find = func(context.Context) (Result, error) { return Result{}, errors.New("disk on fire") }
	report := r.Run(t.Context())
	if diff := cmp.Diff(map[string]string{"l": "good", "m": "1"}, report.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want := "source a: disk on fire; its last good result is kept"
	if len(report.Problems) != 1 || report.Problems[0].String() != want {
		t.Errorf("problems = %v, want %q", report.Problems, want)
	}
}

func TestSourceThatFailsFromTheStartIsNotStale(t *testing.T) {
	src := &fake{name: "a", find: func(context.Context) (Result, error) { return Result{}, errors.New("no") }}
	report := Run(t.Context(), host.Host{}, []Source{src})
	if len(report.Problems) != 1 || report.Problems[0].Stale {
		t.Errorf("problems = %v, want one that is not stale", report.Problems)
	}
}

func TestPanickingSourceSilencesNoOther(t *testing.T) {
	bad := &fake{name: "a", find: func(context.Context) (Result, error) { panic("index out of range") }}
	report := Run(t.Context(), host.Host{}, []Source{bad, finds("b", "m", "1")})
	if report.Labels["m"] != "1" {
		t.Errorf("labels = %v, want those of b", report.Labels)
	}
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].String(), "index out of range") {
		t.Errorf("problems = %v, want the panic", report.Problems)
	}
}

func TestHangingSourceIsLeftBehindAndStartedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var started atomic.Int32
		hangs := &fake{name: "a", find: func(context.Context) (Result, error) {
			started.Add(1)
			<-release
			return NewResult(), nil
		}}
		r := NewRunner(host.Host{}, []Source{hangs, finds("b", "m", "1")}, Everything)
		first := r.Run(t.Context())
		if first.Labels["m"] != "1" || len(first.Problems) != 1 || !errors.Is(first.Problems[0].Err, ErrTimeout) {
			t.Errorf("labels %v, problems %v; want those of b and a timeout of a", first.Labels, first.Problems)
		}
		second := r.Run(t.Context())
		if len(second.Problems) != 1 || started.Load() != 1 {
			t.Errorf("started %d times, problems %v; want 1 and one problem", started.Load(), second.Problems)
		}
		close(release)
		time.Sleep(time.Nanosecond) // simulated time: lets the goroutine end
		if third := r.Run(t.Context()); len(third.Problems) != 0 || started.Load() != 2 {
			t.Errorf("started %d times, problems %v; want a second start and none", started.Load(), third.Problems)
		}
	})
}

func TestReadsEndAtTheDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tree := host.NewTree()
	tree.AddFile("proc/x", []byte("1"))
	h := host.Host{FS: tree}.WithContext(ctx)
	if _, err := h.ReadFile("proc/x"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := h.ReadFile("proc/x"); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadFile = %v, want context.Canceled", err)
	}
}

func TestSingleSourceRunsWithoutTheOthers(t *testing.T) {
	runs := map[string]int{}
	counted := func(name string) *fake {
		f := finds(name, name, "1")
		find := f.find
		f.find = func(ctx context.Context) (Result, error) { runs[name]++; return find(ctx) }
		return f
	}
	r := NewRunner(host.Host{}, []Source{counted("a"), counted("b")}, Everything)
	r.Run(t.Context())
	report := r.Run(t.Context(), "b")
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 2}, runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "1"}, report.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(report.Took) != 1 {
		t.Errorf("took = %v, want b only", report.Took)
	}
}

func TestHigherPriorityWinsLabel(t *testing.T) {
	local, custom, builtin := finds("z", "l", "local"), finds("y", "l", "custom"), finds("x", "l", "builtin")
	local.priority, custom.priority = LocalPriority, CustomPriority
	report := Run(t.Context(), host.Host{}, []Source{local, custom, builtin})
	if got := report.Labels["l"]; got != "local" {
		t.Errorf("label = %q, want local", got)
	}
}

func TestDeriverSeesWhatAllOthersFound(t *testing.T) {
	d := deriver{&fake{name: "custom", priority: CustomPriority}}
	report := Run(t.Context(), host.Host{}, []Source{d, finds("a", "l", "1"), finds("b", "m", "1")})
	want := map[string]string{"l": "1", "m": "1", "saw-a.flag": "true", "saw-b.flag": "true"}
	if diff := cmp.Diff(want, report.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestChoose(t *testing.T) {
	sources := []Source{finds("cpu", "", ""), finds("pci", "", ""), supplemental{finds("fake", "", "")}}
	tests := map[string]struct {
		list    []string
		want    []string
		unknown []string
	}{
		"nothing":                      {},
		"all leaves supplemental out":  {list: []string{"all"}, want: []string{"cpu", "pci"}},
		"supplemental by name":         {list: []string{"all", "fake"}, want: []string{"cpu", "pci", "fake"}},
		"all but one":                  {list: []string{"all", "-pci"}, want: []string{"cpu"}},
		"later all takes a minus back": {list: []string{"-pci", "all"}, want: []string{"cpu", "pci"}},
		"later name takes minus back":  {list: []string{"all", "-pci", "pci"}, want: []string{"cpu", "pci"}},
		"minus all":                    {list: []string{"all", "-all", "cpu"}, want: []string{"cpu"}},
		"names only":                   {list: []string{"pci"}, want: []string{"pci"}},
		"unknown are sorted":           {list: []string{"zap", "pci", "-bar", "zap"}, want: []string{"pci"}, unknown: []string{"-bar", "zap"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, unknown := Choose(tt.list, sources)
			var got []string
			for _, s := range sources {
				if c.Has(s) {
					got = append(got, s.Name())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unknown, unknown); diff != "" {
				t.Errorf("unknown (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFeaturesAndLabelsAreChosenApart(t *testing.T) {
	sources := []Source{finds("a", "a", "1"), finds("b", "b", "1"), finds("c", "c", "1")}
	features, _ := Choose([]string{"a"}, sources)
	labels, _ := Choose([]string{"b"}, sources)
	report := NewRunner(host.Host{}, sources, Selection{Features: features, Labels: labels}).Run(t.Context())
	if _, ok := report.Features.Flags["a.flag"]; !ok || len(report.Features.Flags) != 1 {
		t.Errorf("features = %v, want those of a", report.Features.Flags)
	}
	if diff := cmp.Diff(map[string]string{"b": "1"}, report.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestSourcesOfOneDomainAreMerged(t *testing.T) {
	one, two := NewResult(), NewResult()
	one.Attributes("x.a", map[string]string{"k": "1", "l": "1"})
	two.Attributes("x.a", map[string]string{"k": "2"})
	one.Instances("x.i", []map[string]string{{"n": "1"}})
	two.Instances("x.i", []map[string]string{{"n": "2"}})
	give := func(name string, r Result) *fake {
		return &fake{name: name, find: func(context.Context) (Result, error) { return r, nil }}
	}
	runner := NewRunner(host.Host{}, []Source{give("a", one), give("b", two)}, Everything)
	for range 2 { // twice: a merge must not modify the maps of a source
		report := runner.Run(t.Context())
		if diff := cmp.Diff(map[string]string{"k": "2", "l": "1"}, report.Features.Attributes["x.a"].Elements); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		if n := len(report.Features.Instances["x.i"].Elements); n != 2 {
			t.Errorf("%d instances, want 2", n)
		}
	}
}

func TestLabelThatNoNodeCanHaveCostsNoOther(t *testing.T) {
	src := finds("a", "good", "1")
	src.find = func(context.Context) (Result, error) {
		r := NewResult()
		r.Labels["good"] = "1"
		r.Labels["example.com/good"] = ""
		r.Labels["bad value"] = "1"
		r.Labels["value"] = "a,b"
		return r, nil
	}
	runner := NewRunner(host.Host{}, []Source{src}, Everything)
	for range 2 {
		report := runner.Run(t.Context())
		if diff := cmp.Diff(map[string]string{"good": "1", "example.com/good": ""}, report.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if len(report.Problems) != 2 || !strings.Contains(report.Problems[0].String(), `label "bad value"`) {
			t.Errorf("problems = %v, want one for each bad label", report.Problems)
		}
	}
}

func TestReportSaysWhetherItIsNew(t *testing.T) {
	value := "1"
	src := &fake{name: "a", find: func(context.Context) (Result, error) {
		r := NewResult()
		r.Attributes("a.attribute", map[string]string{"x": value})
		r.Instances("a.instance", []map[string]string{{"y": value}})
		return r, nil
	}}
	derived := 0
	d := counted{deriver{&fake{name: "custom"}}, &derived}
	r := NewRunner(host.Host{}, []Source{src, finds("b", "l", "1"), d}, Everything)
	for i, step := range []struct {
		value   string
		names   []string
		changed bool
		derived int // number of calls so far
	}{
		{value: "1", changed: true, derived: 1},
		{value: "1", names: []string{"a"}, derived: 1},
		{value: "2", names: []string{"b"}, derived: 1},
		{value: "2", names: []string{"a"}, changed: true, derived: 2},
		{value: "2", names: []string{"custom"}, derived: 3},
		{value: "2", derived: 4},
	} {
		value = step.value
		report := r.Run(t.Context(), step.names...)
		if report.Changed != step.changed || derived != step.derived {
			t.Errorf("step %d: changed %t, derived %d times, want %t and %d", i, report.Changed, derived, step.changed, step.derived)
		}
	}
}

// counted counts its Derive calls.
type counted struct {
	deriver
	times *int
}

func (c counted) Derive(ctx context.Context, h host.Host, found *nfdv1alpha1.Features) (Result, error) {
	*c.times++
	return c.deriver.Derive(ctx, h, found)
}

func TestRefusedLabelIsReportedEachTime(t *testing.T) {
	r := NewRunner(host.Host{}, []Source{finds("a", "no/such/label", "1")}, Everything)
	for i := range 2 {
		report := r.Run(t.Context())
		if len(report.Problems) != 1 || len(report.Labels) != 0 {
			t.Errorf("run %d: labels %v and problems %v, want none and one", i, report.Labels, report.Problems)
		}
	}
}

// lister publishes the entries of a directory in /sys.
type lister struct{}

func (lister) Name() string { return "l" }
func (lister) Discover(_ context.Context, h host.Host) (Result, error) {
	r := NewResult()
	names, err := ListDevices(h, "sys/class/x")
	if err != nil {
		return r, err
	}
	r.Flags("l.flag", names)
	return r, nil
}

// TestMountThatAppearsOrDisappears: without /sys nothing is known of the devices there, at first and later.
func TestMountThatAppearsOrDisappears(t *testing.T) {
	tree := host.NewTree()
	tree.AddFile("proc/version", nil)
	r := NewRunner(host.Host{FS: tree}, []Source{lister{}, finds("other", "m", "1")}, Everything)
	want := func(when string, problem string, names ...string) {
		t.Helper()
		report := r.Run(t.Context(), "other")
		var got []string
		set, known := report.Features.Flags["l.flag"]
		for name := range set.Elements {
			got = append(got, name)
		}
		if diff := cmp.Diff(names, got); diff != "" || known != (names != nil) {
			t.Errorf("%s: known %t, entries (-want +got):\n%s", when, known, diff)
		}
		var text []string
		for _, p := range report.Problems {
			text = append(text, p.String())
		}
		if strings.Join(text, "\n") != problem {
			t.Errorf("%s: problems %q, want %q", when, text, problem)
		}
	}
	const gone = "/sys of the host is not mounted: there is no /sys/devices; "
	want("not mounted", gone+"the features that are read there are not published")
	tree.AddDir("sys/devices")
	tree.AddDir("sys/class/x/device")
	want("mounted, after an event of another source", "", "device")
	tree.Remove("sys")
	want("not mounted anymore", gone+"the last features are kept", "device")
	want("still not mounted", gone+"the last features are kept", "device")
	tree.AddDir("sys/devices")
	want("mounted again", "", "device")
}
