package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// hookPath is the PATH of a hook. No other environment variable of the worker is passed on, since it could contain credentials.
const hookPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// execute runs a program without a shell, arguments or input. The program is the leader of a new process group, which is killed
// when the program has ended or ctx is done, so that no child outlives it; the program is also killed if the worker dies.
func execute(ctx context.Context, path string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{hookPath}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	// A child that left the group can keep the pipes open.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	_ = killGroup(cmd.Process.Pid)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("failed with %w", exit)
	}
	return err
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// owner returns the owner of a file, if the file system has one.
func owner(info fs.FileInfo) (uid int, known bool) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), true
	}
	return 0, false
}
