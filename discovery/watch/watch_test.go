package watch

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestUeventSource(t *testing.T) {
	cases := map[string]struct{ message, want string }{
		"PCIDevice":     {"add@/devices/pci0000:00/0000:00:01.0\x00ACTION=add\x00DEVPATH=/devices/x\x00SUBSYSTEM=pci\x00SEQNUM=1\x00", "pci"},
		"NetDevice":     {"remove@/devices/virtual/net/v0\x00ACTION=remove\x00SUBSYSTEM=net\x00", "network"},
		"Module":        {"add@/module/veth\x00ACTION=add\x00SUBSYSTEM=module\x00", "kernel"},
		"Uninteresting": {"add@/devices/virtual/bdi/1\x00SUBSYSTEM=bdi\x00", ""},
		"Udev":          {"libudev\x00\xfe\xed\xca\xfeSUBSYSTEM=pci\x00", ""},
		"Empty":         {"", ""},
		"Truncated":     {"add@/x\x00SUBSYSTEM=", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ueventSource([]byte(tc.message)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzUevent(f *testing.F) {
	f.Add([]byte("add@/x\x00SUBSYSTEM=pci\x00"))
	f.Fuzz(func(_ *testing.T, message []byte) { ueventSource(message); isLinkMessage(message) })
}

func TestDebounceAnnouncesABurstOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	in, out := make(chan string), make(chan []string)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { Debounce(ctx, clock, in, out); close(done) }()
	defer func() { cancel(); <-done }()
	for _, name := range []string{"pci", "network", "pci"} {
		in <- name
	}
	select {
	case got := <-out:
		t.Fatalf("announced %v before the burst was over", got)
	default:
	}
	for {
		select {
		case got := <-out:
			if diff := cmp.Diff([]string{"network", "pci"}, got); diff != "" {
				t.Error(diff)
			}
			return
		default:
			clock.Step(quiet)
			runtime.Gosched()
		}
	}
}
