//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

const (
	// workerName is the name of the process of a worker, and of its Node.
	workerName = "worker"
	// workerLines is the number of lines of its feature file. One changes every second, so none changes often enough to flap.
	workerLines = 600
)

// memoryAt are the fractions of a steady soak at which memory is compared: 5, 15 and 30 minutes of 30.
var memoryAt = []float64{1.0 / 6, 1.0 / 2, 1}

// memory is what a process has in memory, in bytes, and how much of it at most, as the kernel counts.
type memory struct{ now, most float64 }

// startWorker runs a real worker, which discovers this machine and reads a feature file that changes.
func (w *world) startWorker(ctx context.Context) error {
	if err := w.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: workerName}}); err != nil {
		return err
	}
	dir := filepath.Join(w.Dir(), "worker")
	if err := os.MkdirAll(filepath.Join(dir, "features.d"), 0o700); err != nil {
		return err
	}
	w.featureFile = filepath.Join(dir, "features.d", "soak")
	if err := w.writeFeatures(0); err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(filepath.Dir(w.manager), "assay-worker"))
	if err != nil {
		return err
	}
	address, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	admin, err := w.At(w.links[workersLink].URL())
	if err != nil {
		return err
	}
	return w.Run(ctx, cluster.Program{Name: workerName, Path: path, Ready: cluster.Answers("http://127.0.0.1:" + port + "/readyz"), Args: []string{
		"-kubeconfig=" + admin.Kubeconfig, "-namespace=" + namespace, "-node-name=" + workerName, "-port=" + port,
		"-config-dir=" + dir, "-host-paths=native", "-label-sources=all,-local",
	}})
}

// writeFeatures writes the feature file after a number of changes.
func (w *world) writeFeatures(changes int) error {
	var b strings.Builder
	for line := range workerLines {
		_, _ = fmt.Fprintf(&b, "soak.example.com/line-%d=%d\n", line, (changes+workerLines-1-line)/workerLines)
	}
	next := filepath.Join(filepath.Dir(filepath.Dir(w.featureFile)), "next")
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, w.featureFile)
}

// changeWorker changes a line of the feature file every second until the context ends.
func (w *world) changeWorker(ctx context.Context) error {
	for i := 1; stage.Sleep(ctx, time.Second) == nil; i++ {
		if err := w.writeFeatures(i); err != nil {
			return err
		}
	}
	return nil
}

// memoryOf returns the memory of a process by its name.
func (w *world) memoryOf(name string) (m memory, err error) {
	pid, err := w.PID(name)
	if err != nil {
		return m, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(text)) {
		for field, to := range map[string]*float64{"VmRSS:": &m.now, "VmHWM:": &m.most} {
			if rest, ok := strings.CutPrefix(line, field); ok {
				if _, err := fmt.Sscanf(rest, "%g kB", to); err != nil {
					return m, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
				}
				*to *= 1 << 10
			}
		}
	}
	return m, nil
}

// compareMemory measures the processes at memoryAt until the context ends, and prints a table. It fails if a process has ended.
func (s *soak) compareMemory(ctx context.Context) error {
	names := append([]string{workerName}, programNames...)
	rows := make(map[string][]memory, len(names))
	header := "\nprogram"
	for _, at := range memoryAt {
		after := time.Duration(at * float64(s.duration))
		_ = stage.Sleep(ctx, time.Until(s.begin.Add(after))) // the last one is when the context ends
		for _, name := range names {
			m, err := s.memoryOf(name)
			if err != nil {
				return fmt.Errorf("memory of %s after %s: %w", name, after, err)
			}
			rows[name] = append(rows[name], m)
		}
		header += fmt.Sprintf("\tMB after %s\tat most", after.Round(time.Second))
	}
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, header+"\t")
	for _, name := range names {
		_, _ = fmt.Fprint(t, name+"\t")
		for _, m := range rows[name] {
			_, _ = fmt.Fprintf(t, "%.1f\t%.1f\t", m.now/1e6, m.most/1e6)
		}
		_, _ = fmt.Fprintln(t)
	}
	return t.Flush()
}
