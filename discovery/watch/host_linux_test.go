package watch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/assay-project/assay/discovery/host"
)

// watching returns the announcements of a Host for the targets.
func watching(t *testing.T, targets ...Target) <-chan string {
	t.Helper()
	h, errs := Open(targets)
	for _, err := range errs {
		t.Log(err) // a sandbox may forbid netlink; this test only needs files
	}
	if h.files == nil {
		t.Skip("no inotify")
	}
	names := make(chan string, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { h.Run(ctx, func(name string) { names <- name }); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return names
}

func expect(t *testing.T, names <-chan string, want string) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case name := <-names:
			if name == want {
				return
			}
		case <-deadline:
			t.Fatalf("%s was not announced", want)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	names := watching(t, Target{Path: dir, Source: "local"})
	do(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	expect(t, names, "local")
	do(t, os.Remove(filepath.Join(dir, "f")))
	expect(t, names, "local")
}

func TestDirectoriesThatComeLaterAreAnnounced(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "features.d")
	names := watching(t, Target{Path: dir, Source: "local"})
	do(t, os.MkdirAll(dir, 0o755))
	expect(t, names, "local")
	do(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	expect(t, names, "local")
	do(t, os.RemoveAll(filepath.Join(root, "a")))
	expect(t, names, "local")
	do(t, os.MkdirAll(dir, 0o755))
	expect(t, names, "local")
}

func TestDirectoriesOneBelowADeepTargetAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	names := watching(t, Target{Path: dir, Source: "custom", Deep: true}, Target{Path: filepath.Join(dir, "b"), Source: "other"})
	do(t, os.Mkdir(filepath.Join(dir, "b"), 0o755))
	expect(t, names, "other") // shows that the new directory is watched
	do(t, os.WriteFile(filepath.Join(dir, "b", "rules.yaml"), []byte("x"), 0o644))
	expect(t, names, "custom")
}

func TestCoversOnlyWhatItHears(t *testing.T) {
	all := &Host{inputs: []input{{name: kernelEvents}, {name: networkLinks}, {name: "files"}}}
	for name, tt := range map[string]struct {
		host                    *Host
		privileged, sameNetwork bool
		want                    []string
	}{
		"on the host itself":            {all, true, true, []string{"gpu", "pci", "storage", "usb", "network"}},
		"pod with a network of its own": {all, true, false, []string{"gpu", "pci", "storage", "usb"}},
		"pod with users of its own":     {all, false, false, nil},
		"sandbox that forbids netlink":  {&Host{inputs: []input{{name: "files"}}}, true, true, nil},
		"links of the host, no devices": {&Host{inputs: []input{{name: networkLinks}}}, true, true, []string{"network"}},
		"devices, but users of its own": {&Host{inputs: []input{{name: kernelEvents}}}, false, true, nil},
		"links, but of another network": {&Host{inputs: []input{{name: networkLinks}}}, true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.host.covered(tt.privileged, tt.sameNetwork); !slices.Equal(got, tt.want) {
				t.Errorf("covered %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAnotherNetworkIsRecognised(t *testing.T) {
	own, err := net.Interfaces()
	if err != nil || len(own) == 0 {
		t.Skip("no interfaces: ", err)
	}
	archive := "-- sys/class/net/ --\nbonding_masters: bond0\n"
	for _, i := range own {
		archive += fmt.Sprintf("%s/ifindex: %d\n", i.Name, i.Index)
	}
	for name, tt := range map[string]struct {
		more string
		want bool
	}{
		"same":                    {"", true},
		"host has more":           {"assaytest0/ifindex: 4711\n", false},
		"loopback alone is alike": {own[0].Name + "/ifindex: 99999\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(archive + tt.more))
			if err != nil {
				t.Fatal(err)
			}
			if got := SameNetwork(h); got != tt.want {
				t.Errorf("same network: %t, want %t", got, tt.want)
			}
		})
	}
	if SameNetwork(host.Host{}) {
		t.Error("a host that shows no interfaces has the same network")
	}
}
