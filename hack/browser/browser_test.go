// Package browser tests the pages of assay ui, and the documentation as a site, in Chromium. It is a separate module, so that no program of Assay depends on a
// browser.
package browser

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the pictures of the documentation; look at them")

// program is the command line, compiled once; chromium is the path of the browser, empty if there is none.
var program, chromium string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		fmt.Println("browser: skipped, there is no Chromium (Debian: apt-get install chromium)")
		return 0
	}
	if site != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "assay-browser-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "assay")
	build := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/assay")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Println("build assay:", err)
		return 1
	}
	return m.Run()
}

// patience is the timeout of all waits, for loaded machines.
const patience = time.Minute

// start runs assay ui in a directory until the test ends, and returns the address that it prints.
func start(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append([]string{"ui"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HOME="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("assay ui exits with %d when it is interrupted, want 0", code)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("assay ui prints no address: %v", err)
	}
	return strings.TrimSpace(line)
}

// all is the browser that all tests share.
var all = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.WindowSize(width, height))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx, chromedp.Navigate("about:blank"))
})

// The size of the window, and of pictures.
const width, height = 1280, 860

// tab is a browser tab with a page of assay ui.
type tab struct {
	*testing.T
	ctx  context.Context
	base string
}

// open opens a tab. Exceptions, violations of the Content-Security-Policy, and dialogs fail the test.
func open(t *testing.T, base string) *tab {
	t.Helper()
	browser, err := all()
	if err != nil {
		t.Fatalf("start %s: %v", chromium, err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{t, ctx, base}
	b.do(chromedp.EmulateViewport(width, height))
	var mu sync.Mutex
	var wrong []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	err = chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			note("exception: %s", e.ExceptionDetails.Text)
		case *page.EventJavascriptDialogOpening:
			note("dialog: %s", e.Message)
		case *log.EventEntryAdded:
			if e.Entry.Level == "error" && e.Entry.Source != "network" { // a status of 400 is a valid response
				note("console: %s", e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range wrong {
			t.Error(text)
		}
	})
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// scheme sets the preferred color scheme: light or dark.
func (b *tab) scheme(name string) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

// visit opens a page.
func (b *tab) visit(address string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + address))
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) { // the error could be from a page that is still loading
			b.Fatalf("never true: %s (%v); the page says:\n%s", expression, err, eval[string](b, "document.body.innerText"))
		}
	}
}

// says waits until a part of the page contains a string.
func (b *tab) says(selector, text string) {
	b.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// press types keys.
func (b *tab) press(keys string, options ...chromedp.KeyOption) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys, options...))
}

// on waits until an element exists and runs a statement on it as e. The page before could still be shown after a click.
func (b *tab) on(selector, statement string) {
	b.Helper()
	b.wait(fmt.Sprintf(`((e) => { if (!e) return false; %s; return true; })(document.querySelector(%q))`, statement, selector))
}

func (b *tab) click(selector string) {
	b.Helper()
	b.on(selector, "setTimeout(() => e.click())") // the answer arrives before the next page
}

// write replaces the text of a field, as a user who selects all and types. It waits for the page's script, which handles what is typed and
// runs when the whole page has arrived.
func (b *tab) write(selector, text string) {
	b.Helper()
	b.wait(fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q) !== null`, selector))
	b.on(selector, fmt.Sprintf(`e.focus(); e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true}))`, text))
}
