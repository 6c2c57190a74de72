//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// inside runs the test in the namespaces: one step after the other, each with the time it took.
func inside(ctx context.Context, opt options) error {
	// Nothing of the user's own configuration may have a say.
	for _, name := range []string{"KUBECONFIG", "HELM_NAMESPACE", "HELM_DRIVER"} {
		_ = os.Unsetenv(name)
	}
	began := time.Now()
	last := began
	say := func(what string) {
		now := time.Now()
		fmt.Printf("  %6.1fs  %s\n", now.Sub(last).Seconds(), what)
		last = now
	}
	fmt.Println("node: starting a control plane and a node")
	m, err := startMachine(ctx, opt.dir, say)
	if m != nil {
		defer m.Stop()
	}
	if err != nil {
		return err
	}
	if opt.shell != "" {
		return m.sh(opt.shell)
	}
	s := &story{machine: m}
	for _, step := range steps {
		err := step.do(ctx, s)
		var skip skipped
		switch {
		case err == nil:
			say(step.name)
		case asSkipped(err, &skip):
			say(step.name + ": SKIPPED: " + skip.why)
		case ctx.Err() != nil:
			return errInterrupted
		default:
			fmt.Printf("  FAILED   %s: %v\n", step.name, err)
			s.explain(ctx)
			return fmt.Errorf("%s: %w", step.name, err)
		}
		for _, note := range s.notes {
			fmt.Println("           " + note)
		}
		s.notes = nil
	}
	fmt.Printf("node: all of it took %.0f s\n", time.Since(began).Seconds())
	return nil
}

// sh runs a command of the user's on the running node.
func (m *machine) sh(command string) error {
	cmd := exec.Command("sh", "-c", command) //nolint:noctx // the user ends it
	cmd.Env = append(os.Environ(), m.env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// env is the environment for kubectl and helm.
func (m *machine) env() []string {
	return []string{
		"KUBECONFIG=" + m.Kubeconfig, "HOME=" + m.path("home"), "CONTAINERD_ADDRESS=" + m.socket(), "CONTAINERD_NAMESPACE=k8s.io",
		"PATH=" + m.path(binDir) + ":" + os.Getenv("PATH"),
		"HELM_CACHE_HOME=" + m.path("home"), "HELM_CONFIG_HOME=" + m.path("home"), "HELM_DATA_HOME=" + m.path("home"),
	}
}

// helm runs Helm and returns what it prints.
func (m *machine) helm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.path(binDir+"/helm"), args...)
	cmd.Env = append(os.Environ(), m.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
