//go:build linux

// Command cluster runs a real Kubernetes control plane on this machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// The main goroutine stays on the main thread, which lives as long as the process: the kernel sends a child's parent-death signal
// when the thread that started the child ends (prctl(2), PR_SET_PDEATHSIG).
func init() { runtime.LockOSThread() }

func main() {
	_ = cluster.EndWithParent(syscall.SIGTERM) // only a convenience
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1)) // the command has printed its error
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a real Kubernetes control plane on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), runCommand(), upCommand(), downCommand())
	return root
}

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs of Kubernetes, if need be, and print the directory that holds them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := kube.Build(cmd.Context(), os.Stderr)
			if err != nil {
				return err
			}
			fmt.Println(dir)
			return nil
		},
	}
}

func runCommand() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARG]...",
		Short: "Start a control plane, run a command that uses it, and stop it",
		Long: "Start a control plane with Assay's kinds, run a command with KUBECONFIG and " + cluster.DirVar + " set, and stop it.\n" +
			"If the command fails, the logs of the control plane are kept, and the directory is named.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), count, args) },
	}
	cmd.Flags().IntVar(&count, "clusters", 1, "how many control planes to start, for tests that take turns; KUBECONFIG is that of the first")
	return cmd
}

// startAll starts the given number of control planes concurrently. It also returns those that were started if there is an error.
func startAll(ctx context.Context, count int) ([]*cluster.Cluster, error) {
	if count < 1 {
		return nil, fmt.Errorf("--clusters: got %d, want 1 or more", count)
	}
	// Build the programs once, before starting control planes concurrently.
	if _, err := kube.Find(ctx, os.Stderr, kube.ControlPlane...); err != nil {
		return nil, err
	}
	all, failures := make([]*cluster.Cluster, count), make([]error, count)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			opts := cluster.SharedOptions()
			opts.Progress = os.Stderr
			all[i], failures[i] = start(ctx, opts)
		})
	}
	starting.Wait()
	return slices.DeleteFunc(all, func(c *cluster.Cluster) bool { return c == nil }), errors.Join(failures...)
}

func run(ctx context.Context, count int, args []string) error {
	all, err := startAll(ctx, count)
	defer func() {
		for _, c := range all {
			c.Stop()
		}
	}()
	if err != nil {
		return err
	}
	c := all[0]
	dirs := make([]string, len(all))
	for i, c := range all {
		dirs[i] = c.Dir()
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // ended below, not killed
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig,
		cluster.DirVar+"="+strings.Join(dirs, string(filepath.ListSeparator)),
		"PATH="+filepath.Dir(c.Program(kube.Kubectl))+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Ctrl-C has also reached the command, which is in the same process group; SIGTERM has not. In both cases wait until the
	// command ends, so that its cleanup still finds a control plane.
	stopForwarding := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stopForwarding()
	err = cmd.Wait()
	if err != nil && ctx.Err() == nil {
		for _, c := range all {
			keepLogs(c)
		}
	}
	return err
}

// keepLogs copies the logs of the control plane to a directory that is not removed.
func keepLogs(c *cluster.Cluster) {
	dir, err := os.MkdirTemp("", "assay-logs-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(c.LogDir()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster: keep the logs:", err)
		return
	}
	fmt.Fprintln(os.Stderr, "cluster: the logs of the control plane are in", dir)
}

func upCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a control plane and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := cluster.SharedOptions()
			opts.RunDir, opts.Detach, opts.Progress = dir, true, os.Stderr
			if err := cluster.Down(dir); err != nil { // an earlier one
				return err
			}
			c, err := start(cmd.Context(), opts)
			if err != nil {
				return err
			}
			fmt.Printf("export KUBECONFIG=%s\nexport %s=%s\nexport PATH=%s:$PATH\n",
				c.Kubeconfig, cluster.DirVar, c.Dir(), filepath.Dir(c.Program(kube.Kubectl)))
			fmt.Fprintf(os.Stderr, "cluster: stop it with: cluster down --run-dir=%s\n", c.Dir())
			return nil
		},
	}
	runDirFlag(cmd, &dir)
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the control plane that up started, and remove its directory",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return cluster.Down(dir) },
	}
	runDirFlag(cmd, &dir)
	return cmd
}

func runDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "run-dir", filepath.Join(os.TempDir(), fmt.Sprintf("assay-%d", os.Getuid())), "directory for certificates, data and logs")
}

// start starts a control plane with Assay's CRDs and prints messages.
func start(ctx context.Context, opts cluster.Options) (*cluster.Cluster, error) {
	began := time.Now()
	c, err := cluster.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := c.ApplyCRDs(ctx); err != nil {
		return nil, errors.Join(err, stopped(c, opts))
	}
	fmt.Fprintf(os.Stderr, "cluster: Kubernetes %s is up after %s: %s\n",
		kube.Version, time.Since(began).Round(100*time.Millisecond), strings.TrimPrefix(c.RESTConfig().Host, "https://"))
	return c, nil
}

// stopped stops a cluster after an error.
func stopped(c *cluster.Cluster, opts cluster.Options) error {
	c.Stop()
	if opts.RunDir != "" {
		return os.RemoveAll(opts.RunDir)
	}
	return nil
}
