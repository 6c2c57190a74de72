//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/internal/testkit"
)

// underTest is the environment variable with which the program of the tests is the worker.
const underTest = "ASSAY_WORKER_UNDER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(underTest) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestWorkerThatIsStoppedAtItsStartTakesNothingAway restarts a worker and stops its process for 2.6 seconds during its first discovery,
// as a busy machine does.
func TestWorkerThatIsStoppedAtItsStartTakesNothingAway(t *testing.T) {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	namespace := testkit.Namespace(t, c)
	node := testkit.Node(t, c, "stopped-worker")
	configFile := filepath.Join(t.TempDir(), "worker.conf")
	writeFile(t, configFile, "core: {sleepInterval: 1h}\n")
	args := []string{
		"-kubeconfig", user.Kubeconfig, "-namespace", namespace, "-node-name", node.Name, "-config", configFile,
		"-host-paths=native", "-host-root", largeHost(t), "-sandbox=off",
	}
	if code := run(t.Context(), append(args, "-oneshot"), io.Discard, io.Discard); code != exitOK {
		t.Fatalf("exit code = %d", code)
	}
	before := eventually(t, c, namespace, node.Name, "published", func(*nfdv1alpha1.NodeFeature) bool { return true })
	if before.Spec.Labels["pci-0302_10de.present"] == "" || len(before.Spec.Features.Instances["pci.device"].Elements) == 0 {
		t.Fatalf("no devices to begin with: %v", before.Spec.Labels)
	}
	changes, err := c.Watch(t.Context(), &nfdv1alpha1.NodeFeatureList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	const enough, tries = 3, 12
	hit := 0
	for try := 0; try < tries && hit < enough; try++ {
		address := testkit.FreeAddress(t)
		log := stoppedAtItsStart(t, append(args, "-v=4", "-port="+testkit.Port(address)))
		testkit.Eventually(t, "the worker to be ready", func(ctx context.Context) error {
			body, err := testkit.Get(ctx, "http://"+address+"/readyz")
			if err == nil && strings.TrimSpace(body) != "ok" {
				err = errors.New(body)
			}
			return err
		})
		if strings.Contains(log.String(), discovery.ErrTimeout.Error()) {
			hit++
		}
	}
	if hit < enough {
		t.Fatalf("%d of %d workers were stopped during their first discovery", hit, tries)
	}
	lostNothing(t, c, before, changes)
}

// largeHost returns the root of a host whose PCI devices take the worker a tenth of a second, so that it can be stopped meanwhile.
func largeHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for i := range 1000 {
		for name, text := range map[string]string{"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "subsystem_vendor": "0x10de", "subsystem_device": "0x16c1"} {
			writeUnder(t, root, fmt.Sprintf("sys/bus/pci/devices/0000:%02x:%02x.%d/%s", i/256, i/8%32, i%8, name), text)
		}
	}
	writeUnder(t, root, "proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555")
	writeUnder(t, root, "proc/version", "Linux version 6.1.0")
	if err := os.MkdirAll(filepath.Join(root, "sys/devices"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func writeUnder(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stoppedAtItsStart runs a worker until the test ends, stops it for a moment when it has begun its first discovery, and returns its log.
func stoppedAtItsStart(t *testing.T, args []string) *logged {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), underTest+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "Watching events") {
	}
	time.Sleep(20 * time.Millisecond) // the discovery has begun, and takes ten times as long
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2600 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	read, log := make(chan struct{}), &logged{}
	go func() {
		defer close(read)
		for lines.Scan() {
			_, _ = io.WriteString(log, lines.Text()+"\n")
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		t.Log(log)
	})
	return log
}

// lostNothing checks that no change so far took a label or a feature away.
func lostNothing(t *testing.T, c client.Client, before *nfdv1alpha1.NodeFeature, changes watch.Interface) {
	t.Helper()
	const end = "example.com/end"
	marked := before.DeepCopy()
	marked.Annotations = map[string]string{end: "true"}
	if err := c.Patch(t.Context(), marked, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	for e := range changes.ResultChan() {
		now, ok := e.Object.(*nfdv1alpha1.NodeFeature)
		if !ok {
			t.Fatalf("%s %v", e.Type, e.Object)
		}
		if diff := cmp.Diff(before.Spec.Labels, now.Spec.Labels); diff != "" {
			t.Errorf("labels, -before +then:\n%s", diff)
		}
		f := now.Spec.Features
		for name := range before.Spec.Features.Instances {
			if _, ok := f.Instances[name]; !ok {
				t.Errorf("%s is gone", name)
			}
		}
		for name := range before.Spec.Features.Attributes {
			if _, ok := f.Attributes[name]; !ok {
				t.Errorf("%s is gone", name)
			}
		}
		if now.Annotations[end] != "" {
			return
		}
	}
	t.Error("the watch ended")
}
