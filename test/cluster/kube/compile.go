//go:build linux

package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// buildEnv is the project's set of build flags (the Makefile exports the same): with another -trimpath or CGO_ENABLED, client-go
// and its dependencies would be compiled twice.
var buildEnv = []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false"}

// compilerEnv makes the compiler collect garbage less often, which saves a third of its time for the largest packages. It is not part of
// the keys of Go's build cache. The limit is for the linker, which needs 2.5 GB.
var compilerEnv = []string{"GOGC=400", "GOMEMLIMIT=2500MiB"}

// reportEvery is the interval of progress messages during a build.
const reportEvery = 15 * time.Second

// ldflags strips the binary and sets the version. Without a version `kubectl version` fails, since it cannot parse the placeholder
// in the source.
func ldflags() string {
	parts := strings.Split(strings.TrimPrefix(Version, "v"), ".")
	const version = "k8s.io/component-base/version."
	return strings.Join([]string{
		"-s", "-w",
		"-X", version + "gitVersion=" + Version,
		"-X", version + "gitMajor=" + parts[0],
		"-X", version + "gitMinor=" + parts[1],
		"-X", version + "gitTreeState=clean",
		"-X", version + "buildDate=1970-01-01T00:00:00Z",
	}, " ")
}

// compile builds the module in source to the file out.
func compile(ctx context.Context, e edition, source, out string, progress io.Writer) error {
	start := time.Now()
	fmt.Fprintf(progress, "kube: looking up what a Kubernetes %s control plane needs (the first time that downloads some 200 Go modules)\n", Version)
	report := newReport(progress, start)
	err := run(ctx, source, report, "list", "-tags", e.tag, "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", ".")
	if err != nil {
		return err
	}
	// The program itself is always stale, since it is never installed; two or three packages need no warning.
	if total := report.total(); total > 3 {
		fmt.Fprintf(progress, "kube: compiling "+e.about+", once; afterwards it is cached. "+
			"If %s names a directory with these programs, such as that of setup-envtest, nothing is compiled.\n", total, AssetsVar)
	}
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { report.tick(done) })
	err = run(ctx, source, report, "build", "-v", "-tags", e.tag, "-ldflags", ldflags(), "-o", out, ".")
	close(done)
	ticking.Wait()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "kube: built in %s\n", time.Since(start).Round(time.Second))
	return nil
}

// run runs the go command. Its output lists packages to compile; its error output goes to the report, and is quoted in the error.
func run(ctx context.Context, dir string, report *report, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), buildEnv...)
	cmd.Env = append(append(cmd.Env, "GOWORK=off"), compilerEnv...)
	var said tail
	var reading sync.WaitGroup
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return errors.New("the go command is not in PATH")
		}
		return err
	}
	reading.Go(func() { eachLine(stdout, report.planned) })
	reading.Go(func() {
		eachLine(stderr, func(line string) {
			if !report.happened(line) {
				said.add(line)
			}
		})
	})
	reading.Wait()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("go %s: %w\n%s", args[0], err, said.String())
	}
	return nil
}

func eachLine(r io.Reader, f func(string)) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f(lines.Text())
	}
	_, _ = io.Copy(io.Discard, r) // after a line beyond the scanner's limit: do not block the writer
}

// report tracks the progress of the go command. It is safe for concurrent use.
type report struct {
	w     io.Writer
	start time.Time

	mu         sync.Mutex
	stale      map[string]bool // packages to compile
	compiled   int
	downloaded int
}

func newReport(w io.Writer, start time.Time) *report {
	return &report{w: w, start: start, stale: map[string]bool{}}
}

// planned records a package to compile.
func (r *report) planned(line string) {
	if line == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale[line] = true
}

// happened processes a line of the go command's error output and returns whether it is a progress message.
func (r *report) happened(line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		r.downloaded++
		if r.downloaded%50 == 0 {
			fmt.Fprintf(r.w, "kube: %d modules downloaded, %s\n", r.downloaded, r.elapsed())
		}
		return true
	case r.stale[line]:
		r.compiled++
		return true
	}
	return false
}

func (r *report) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.stale)
}

// tick reports the progress of the compilation periodically, until done is closed.
func (r *report) tick(done <-chan struct{}) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			fmt.Fprintln(r.w, r.line())
		}
	}
}

func (r *report) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.compiled >= len(r.stale)-1 { // the last one is the program itself: it is compiled quickly, then linked
		return fmt.Sprintf("kube: linking (needs some 2.5 GB of memory for half a minute), %s", r.elapsed())
	}
	return fmt.Sprintf("kube: %4d of %d packages compiled (%d %%), %s",
		r.compiled, len(r.stale), 100*r.compiled/len(r.stale), r.elapsed())
}

func (r *report) elapsed() time.Duration { return time.Since(r.start).Round(time.Second) }

// tailLines is the number of output lines of a failed command that an error quotes: enough for a compiler's messages.
const tailLines = 30

// tail keeps the last lines. It is not safe for concurrent use.
type tail struct{ lines []string }

func (t *tail) add(line string) {
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

func (t *tail) String() string { return strings.Join(t.lines, "\n") }
