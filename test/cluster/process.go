//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program that a Cluster runs: a part of the control plane, or a program under test.
type Program struct {
	// Name names the program in messages, in Kill and Restart, and its log file.
	Name string
	// Path is the executable; Args are its arguments, without its name.
	Path string
	Args []string
	// Env is added to the environment.
	Env []string
	// Ready returns nil once the program is ready. It is polled; nil means ready immediately.
	Ready func(context.Context) error
}

// process is a running program. Its methods are safe for concurrent use.
type process struct {
	Program
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // error at its end; set before done is closed
}

// spawner runs functions on one operating system thread that lives as long as this program. The kernel sends a child its
// parent-death signal when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG), and Go can end any other thread.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startProcess starts a program with its output appended to a file in logDir. Unless it is detached, the kernel kills it when this
// program ends for any reason.
func startProcess(program Program, logDir string, detached bool) (*process, error) {
	path := filepath.Join(logDir, program.Name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own

	cmd := exec.Command(program.Path, program.Args...) //nolint:noctx // outlives the call that starts it
	cmd.Env = append(os.Environ(), program.Env...)
	cmd.Dir = logDir
	cmd.Stdout, cmd.Stderr = log, log
	// A separate session: Ctrl-C in a terminal only reaches this program, which then stops the others in order. Also, each program
	// gets its own share of the processors, as containers under a kubelet do, because the kernel first distributes them among
	// sessions (sched(7), the autogroup feature).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !detached {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Name, err)
	}
	p := &process{Program: program, cmd: cmd, log: path, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// EndWithParent makes the kernel send this process a signal when its parent ends (prctl(2), PR_SET_PDEATHSIG): otherwise this
// process and its children would survive a killed `go run`, `go test` or make.
func EndWithParent(signal syscall.Signal) error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(signal), 0, 0, 0)
}

// waitReady waits until the program is ready, has ended, or times out. The error quotes the end of its log.
func (p *process) waitReady(ctx context.Context) error {
	if p.Ready == nil {
		return nil
	}
	err := WaitFor(ctx, "start "+p.Name, func(ctx context.Context) error {
		select {
		case <-p.done:
			return permanentError{p.ended()}
		default:
			return p.Ready(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, quoteLog(p.log))
	}
	return nil
}

// ended returns why a program ended.
func (p *process) ended() error {
	if p.err != nil {
		return fmt.Errorf("it ended: %w", p.err)
	}
	return errors.New("it ended without an error")
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// kill kills the program and waits until it has ended. This also works for a stopped program (SIGSTOP).
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // only fails if it has already ended
	<-p.done
}

const (
	// quotedLines is the number of log lines quoted in an error.
	quotedLines = 25
	// quotedBytes is the number of bytes read for that.
	quotedBytes = 64 << 10
)

// quoteLog returns the end of a log file, indented, after its path.
func quoteLog(path string) string {
	data, err := tailOf(path)
	if err != nil {
		return fmt.Sprintf("its log cannot be read: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) > quotedLines {
		lines = lines[len(lines)-quotedLines:]
	}
	return "the end of " + path + ":\n    " + strings.Join(lines, "\n    ")
}

func tailOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(info.Size(), quotedBytes))
	n, err := file.ReadAt(data, info.Size()-int64(len(data)))
	return data[:n], err
}
