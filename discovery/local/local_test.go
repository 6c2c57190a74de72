package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// result is the user-visible result of a discovery.
type result struct {
	Labels, Features map[string]string
	Problems         []string
}

func discover(t *testing.T, files map[string]string, change func(*Config)) result {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, "features.d", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Directory: "features.d", Now: func() time.Time { return noon }}
	if change != nil {
		change(&c)
	}
	r, err := New(c).Discover(context.Background(), host.Real(host.Paths{Root: root}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Features.Attributes[LabelFeature].Elements, r.Labels); len(r.Labels) > 0 && diff != "" {
		t.Errorf("labels differ from %s: %s", LabelFeature, diff)
	}
	out := result{Labels: r.Labels, Features: r.Features.Attributes[PlainFeature].Elements}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, p.Error())
	}
	return out
}

func TestFeatureFiles(t *testing.T) {
	type m = map[string]string
	cases := map[string]struct {
		files    m
		labels   m
		features m
		problems []string
	}{
		"NameIsTrueAndValueIsVerbatim": {
			files:  m{"a": "one\n  two=2=3 \n# a comment\n\nvendor.io/three = x\n"},
			labels: m{"one": "true", "two": "2=3", "vendor.io/three ": " x"}, features: m{"one": "true", "two": "2=3", "vendor.io/three ": " x"}, //nolint:gocritic // the space is kept
		},
		"DirectivesHoldForTheNextLineOnly": {
			files:  m{"a": "# +no-feature\nlabel=1\n# +no-label\nfeature=1\nboth=1\n"},
			labels: m{"label": "1", "both": "1"}, features: m{"feature": "1", "both": "1"},
		},
		"DirectivesTakeBackAnEarlierLine": {
			files:  m{"a": "x=1\n# +no-label\nx=2\n"},
			labels: m{}, features: m{"x": "2"},
		},
		"ExpiryHoldsUntilTheNextOne": {
			files: m{"a": "# +expiry-time=2026-01-01T11:00:00Z\nold=1\nold2=1\n" +
				"# +expiry-time=2026-01-01T13:00:00Z\nnew=1\n"},
			labels: m{"new": "1"}, features: m{"new": "1"},
		},
		"ExpiryEndsWithItsFile": {
			files:  m{"a": "# +expiry-time=2026-01-01T11:00:00Z\nold=1\n", "b": "new=1\n"},
			labels: m{"new": "1"}, features: m{"new": "1"},
		},
		"UnreadableExpiryKeepsTheOneBefore": {
			files:  m{"a": "# +expiry-time=tomorrow\nx=1\n"},
			labels: m{"x": "1"}, features: m{"x": "1"},
			problems: []string{`/features.d/a:1: expiry-time "tomorrow": write a time such as 2030-01-31T12:00:00Z`},
		},
		"LaterFileWins": {
			files:  m{"a": "x=1\n", "b": "x=2\n"},
			labels: m{"x": "2"}, features: m{"x": "2"},
			problems: []string{"/features.d/b:1: x is also set in /features.d/a:1; this line wins"},
		},
		"DotFilesAndDirectoriesAreSkipped": {
			files:  m{".hidden": "x=1\n", "dir/y": "y=1\n", "z": "z\n"},
			labels: m{"z": "true"}, features: m{"z": "true"},
		},
		"UnknownDirectiveIsSaid": {
			files:  m{"a": "# +no-labels\nx\n"},
			labels: m{"x": "true"}, features: m{"x": "true"},
			problems: []string{`/features.d/a:1: unknown directive "no-labels": use +expiry-time=, +no-feature or +no-label`},
		},
		"TooLargeFileIsLeftOut": {
			files:  m{"a": strings.Repeat("x\n", MaxFileSize), "b": "y\n"},
			labels: m{"y": "true"}, features: m{"y": "true"},
			problems: []string{"/features.d/a: larger than the limit of 65536 bytes; ignored"},
		},
		"NamelessLineIsSaid": {
			files:    m{"a": "=1\n"},
			labels:   m{},
			problems: []string{`/features.d/a:1: "=1" has no name before the =`},
		},
		"NoDirectory": {labels: m{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := discover(t, tc.files, nil)
			if diff := cmp.Diff(result{tc.labels, tc.features, tc.problems}, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFileSpeaksOnlyOfWhatItMay(t *testing.T) {
	files := map[string]string{
		"gpu-driver": "gpu.example.com/driver=550\nnode-role=admin\n",
		"nic.conf":   "nic-speed=100\n# +no-feature\ngpu.example.com/driver=1\n",
		"other":      "x=1\n",
		"ours":       "anything=true\n",
	}
	got := discover(t, files, func(c *Config) {
		c.FilePrefixes = map[string][]string{"gpu-*": {"gpu.example.com/"}, "nic.conf": {"nic-", "nic."}, "ours": {""}, "[": {""}}
	})
	want := result{
		Labels:   map[string]string{"gpu.example.com/driver": "550", "nic-speed": "100", "anything": "true"},
		Features: map[string]string{"gpu.example.com/driver": "550", "nic-speed": "100", "anything": "true"},
		Problems: []string{
			"/features.d/gpu-driver:2: node-role is ignored: sources.local.filePrefixes does not allow this name in this file",
			"/features.d/nic.conf:3: gpu.example.com/driver is ignored: sources.local.filePrefixes does not allow this name in this file",
			"/features.d/other:1: x is ignored: sources.local.filePrefixes does not allow this name in this file",
		},
	}
	got.Problems = slices.DeleteFunc(got.Problems, func(p string) bool { return strings.Contains(p, "can label this node") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStrictRefusesWhatOthersCanWrite(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "features.d", "open")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o646); err != nil {
		t.Fatal(err)
	}
	for strict, labels := range map[bool]int{false: 1, true: 0} {
		r, err := New(Config{Directory: "features.d", Strict: strict}).Discover(context.Background(), host.Real(host.Paths{Root: root}))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Labels) != labels || len(r.Problems) != 1 {
			t.Errorf("strict %v: labels %v, problems %v", strict, r.Labels, r.Problems)
		}
	}
}

// hooks writes executable scripts and returns their directory.
func hooks(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNoHookRunsOfADirectoryThatOthersWrite: its files pass their checks, and are exchanged before they are executed.
func TestNoHookRunsOfADirectoryThatOthersWrite(t *testing.T) {
	dir := hooks(t, map[string]string{"a": "echo ran=1"})
	for mode, labels := range map[os.FileMode]int{0o755: 1, 0o775: 0, 0o777: 0} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Directory: "none", HooksEnabled: true, HooksDirectory: dir}).Discover(t.Context(), host.Real(host.Paths{Root: t.TempDir()}))
		if err != nil {
			t.Fatal(err)
		}
		if named := strings.Contains(fmt.Sprint(r.Problems), dir+": no hook runs: "); len(r.Labels) != labels || named != (labels == 0) {
			t.Errorf("%o: labels %v, problems %v", mode, r.Labels, r.Problems)
		}
	}
}

func TestHooks(t *testing.T) {
	dir := hooks(t, map[string]string{
		"a-good":  "echo good=1; echo '# +no-label'; echo feature=1; echo said >&2",
		"b-fails": "echo lost=1; exit 3",
		"c-loud":  "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
		"d-env":   "echo secret=$SECRET; echo cwd=$PWD",
	})
	if err := os.WriteFile(filepath.Join(dir, "no-program"), []byte("echo never"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET", "token")
	var said []string
	got := discover(t, map[string]string{"f": "good=2\n"}, func(c *Config) {
		c.HooksEnabled, c.HooksDirectory = true, dir
		c.Stderr = func(hook, line string) { said = append(said, hook+": "+line) }
	})
	want := result{
		Labels:   map[string]string{"good": "2", "secret": "", "cwd": "/"},
		Features: map[string]string{"good": "2", "feature": "1", "secret": "", "cwd": "/"},
		Problems: []string{
			"hook " + dir + "/b-fails: failed with exit status 3",
			"hook " + dir + "/c-loud: printed more than 65536 bytes",
			"/features.d/f:1: good is also set in " + dir + "/a-good:1; this line wins",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a-good: said"}, said); diff != "" {
		t.Errorf("stderr: %s", diff)
	}
}

// TestWhatFailsKeepsWhatItContained lets a hook and a file fail after they were read once.
func TestWhatFailsKeepsWhatItContained(t *testing.T) {
	root := t.TempDir()
	state, file := filepath.Join(root, "state"), filepath.Join(root, "features.d", "f")
	dir := hooks(t, map[string]string{"a": "cat " + state})
	write := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	now := noon
	s := New(Config{Directory: "features.d", HooksEnabled: true, HooksDirectory: dir, Now: func() time.Time { return now }})
	step := func(what string, want map[string]string, problems int) {
		t.Helper()
		r, err := s.Discover(t.Context(), host.Real(host.Paths{Root: root}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Labels); diff != "" || len(r.Problems) != problems {
			t.Errorf("%s: problems %v, labels (-want +got):\n%s", what, r.Problems, diff)
		}
	}
	step("the hook fails the first time", map[string]string{}, 1)
	write(state, "hook=1")
	write(file, "file=1\n# +expiry-time=2026-01-01T13:00:00Z\nexpires=1")
	step("both are good", map[string]string{"hook": "1", "file": "1", "expires": "1"}, 0)
	remove(state)
	remove(file)
	if err := os.Symlink("f", file); err != nil { // it exists, and cannot be read
		t.Fatal(err)
	}
	for range 2 {
		step("both fail", map[string]string{"hook": "1", "file": "1", "expires": "1"}, 2)
	}
	now = noon.Add(2 * time.Hour)
	step("both fail after the time of a line", map[string]string{"hook": "1", "file": "1"}, 2)
	write(state, "hook=2")
	write(file, "file=2")
	step("both are good again", map[string]string{"hook": "2", "file": "2"}, 0)
	remove(filepath.Join(dir, "a"))
	remove(file)
	step("both are deleted", map[string]string{}, 0)
}

func TestHooksAreOffByDefault(t *testing.T) {
	dir := hooks(t, map[string]string{"a": "echo x"})
	got := discover(t, nil, func(c *Config) { c.HooksDirectory = dir })
	if len(got.Labels) > 0 {
		t.Errorf("labels = %v", got.Labels)
	}
}

func TestHookThatHangsIsEndedWithItsChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	dir := hooks(t, map[string]string{"a": fmt.Sprintf("sleep 1000 & echo $! > %s.new; mv %s.new %s; wait", pidFile, pidFile, pidFile)})
	got := discover(t, nil, func(c *Config) {
		c.HooksEnabled, c.HooksDirectory, c.HookTimeout = true, dir, 300*time.Millisecond
	})
	want := []string{"hook " + dir + "/a: " + errTime.Error()}
	if diff := cmp.Diff(want, got.Problems); diff != "" {
		t.Fatal(diff)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Skip("the machine was too busy to start the child in time")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	// A signal takes effect when the kernel schedules the child again, which can be late on a busy machine.
	for deadline := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("child %d lives", pid)
		}
	}
}

// alive reports whether a process is running; a zombie is not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestHooksGetMoreTimeThanFiles(t *testing.T) {
	var patient discovery.Patient = New(Config{HooksEnabled: true})
	if patient.Timeout() <= discovery.SourceTimeout {
		t.Errorf("timeout = %v", patient.Timeout())
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a\nb=c\n# +no-label\nd\n# +expiry-time=2030-01-01T00:00:00Z\ne\n")
	f.Add("# +expiry-time=\xff\n\x00=\n")
	f.Fuzz(func(t *testing.T, text string) {
		e := &elements{labels: map[string]string{}, features: map[string]string{}, from: map[string]string{}, now: noon}
		e.parse("f", []byte(text))
		for name := range e.labels {
			if name == "" || strings.ContainsAny(name, "\n=") {
				t.Errorf("name %q", name)
			}
		}
	})
}

// TestExpiredLinesReturnWhenTheClockIsSetBack: a line that had expired while the clock of the node was ahead stayed away until a file changed.
func TestExpiredLinesReturnWhenTheClockIsSetBack(t *testing.T) {
	root, now := t.TempDir(), noon
	if err := os.Mkdir(filepath.Join(root, "features.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "features.d", "a"), []byte("always\n# +expiry-time=2026-01-01T12:30:00Z\nsoon\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	own := host.Real(host.Paths{Root: root})
	r := discovery.NewRunner(host.Host{}, []discovery.Source{New(Config{Directory: "features.d", Files: &own, Now: func() time.Time { return now }})}, discovery.Everything)
	for _, step := range []struct {
		ahead time.Duration
		want  []string
	}{{0, []string{"always", "soon"}}, {time.Hour, []string{"always"}}, {0, []string{"always", "soon"}}, {-time.Hour, []string{"always", "soon"}}} {
		now = noon.Add(step.ahead)
		for range 2 {
			if got := slices.Sorted(maps.Keys(r.Poll(t.Context()).Labels)); !slices.Equal(got, step.want) {
				t.Errorf("with a clock that is %s ahead: labels %v, want %v", step.ahead, got, step.want)
			}
		}
	}
}

func TestPollSeesFilesAndTheirExpiry(t *testing.T) {
	root, now := t.TempDir(), noon
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, "features.d", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "features.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("a", "# +expiry-time=2026-01-01T12:05:00Z\nsoon\n# +expiry-time=2026-01-01T13:00:00Z\nlater\n")
	own := host.Real(host.Paths{Root: root})
	src := New(Config{Directory: "features.d", Files: &own, Now: func() time.Time { return now }})
	r := discovery.NewRunner(host.Host{}, []discovery.Source{src}, discovery.Everything)
	poll := func(changed bool, want ...string) {
		t.Helper()
		report := r.Poll(t.Context())
		if got := slices.Sorted(maps.Keys(report.Labels)); report.Changed != changed || !slices.Equal(got, want) {
			t.Errorf("changed %t, labels %v, want %t, %v", report.Changed, got, changed, want)
		}
	}
	poll(true, "later", "soon")
	poll(false, "later", "soon")
	now = noon.Add(5 * time.Minute)
	poll(true, "later")
	poll(false, "later")
	write("b", "new\n")
	poll(true, "later", "new")
	write("b", "other\n")
	poll(true, "later", "other")
	now = noon.Add(time.Hour)
	poll(true, "other")
}
