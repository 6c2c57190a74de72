//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// inside runs the test in the namespaces, and prints the duration of each step.
func inside(ctx context.Context, opt options) error {
	// The user's own configuration must have no effect.
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
		defer m.saveLogs()
	}
	if err != nil {
		return err
	}
	if opt.shell != "" {
		return m.sh(opt.shell)
	}
	s := &story{machine: m, transcript: &transcript{}}
	if err := s.run(ctx); err != nil {
		return err
	}
	sizes, err := m.imageSizes()
	if err != nil {
		return err
	}
	fmt.Println("\nfigures, of this machine:")
	for _, figure := range append(s.figures, sizes...) {
		fmt.Println(indent("  ", figure))
	}
	fmt.Printf("\nnode: %d steps passed, in %.0f s\n", len(steps), time.Since(began).Seconds())
	return nil
}

// run runs all steps.
func (s *story) run(ctx context.Context) error {
	for _, step := range steps {
		s.begin(step.name)
		err := step.do(ctx, s)
		switch {
		case err == nil:
			s.end("ok")
		case ctx.Err() != nil:
			return errInterrupted
		default:
			s.end("FAILED: " + err.Error())
			s.explain(ctx)
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// sh runs a command of the user on the running node.
func (m *machine) sh(command string) error {
	cmd := exec.Command("sh", "-c", command) //nolint:noctx // the user ends it
	cmd.Env = append(os.Environ(), m.env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// env returns the environment for kubectl and helm.
func (m *machine) env() []string {
	return []string{
		"KUBECONFIG=" + m.Kubeconfig, "HOME=" + m.path("home"), "CONTAINERD_ADDRESS=" + m.socket(), "CONTAINERD_NAMESPACE=k8s.io",
		"PATH=" + m.path(binDir) + ":" + os.Getenv("PATH"),
		"HELM_CACHE_HOME=" + m.path("home"), "HELM_CONFIG_HOME=" + m.path("home"), "HELM_DATA_HOME=" + m.path("home"),
	}
}
