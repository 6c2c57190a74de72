package topology

import (
	"context"
	"errors"
	"testing"

	"github.com/assay-project/assay/discovery/podres"
)

// states is a kubelet whose answers are scripted: each call returns the next one, the last one forever.
type states struct {
	allocatable []podres.Allocatable
	pods        [][]podres.Pod
	fail        error
	calls       string
}

func next[T any](list *[]T) T {
	first := (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return first
}

func (s *states) List(context.Context) ([]podres.Pod, error) {
	s.calls += "L"
	return next(&s.pods), s.fail
}

func (s *states) Allocatable(context.Context) (*podres.Allocatable, error) {
	s.calls += "A"
	a := next(&s.allocatable)
	return &a, nil
}

// TestReadIsOfOneTime: a device plugin registers, and a pod gets its device, while the kubelet is read.
func TestReadIsOfOneTime(t *testing.T) {
	none := podres.Allocatable{}
	one := podres.Allocatable{Devices: []podres.Devices{devices("v/x", "1", 0)}}
	idle, busy := []podres.Pod{}, []podres.Pod{holding("a", podres.Container{Devices: []podres.Devices{devices("v/x", "1", 0)}})}
	for name, tt := range map[string]struct {
		states states
		calls  string
		reads  int
		device string // the resource of the only device in node 0
	}{
		"Quiet":                    {states{allocatable: []podres.Allocatable{one}, pods: [][]podres.Pod{busy}}, "ALA", 1, "1/0"},
		"DeviceAppears":            {states{allocatable: []podres.Allocatable{none, one}, pods: [][]podres.Pod{idle, busy}}, "ALALA", 2, "1/0"},
		"PodHoldsAnUnknownOne":     {states{allocatable: []podres.Allocatable{none, none, one}, pods: [][]podres.Pod{busy}}, "ALALALA", 3, "1/0"},
		"DeviceStaysUnallocatable": {states{allocatable: []podres.Allocatable{none}, pods: [][]podres.Pod{busy}}, "ALALALA", 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := &Input{Machine: machine(t, twoNodes()), Kubelet: static()}
			r, reads, err := Read(t.Context(), &tt.states, in)
			if err != nil || reads != tt.reads || tt.states.calls != tt.calls {
				t.Errorf("error %v, %d reads with %s; want %d with %s", err, reads, tt.states.calls, tt.reads, tt.calls)
			}
			got := ""
			for _, q := range r.Zones[0].Resources {
				if q.Name == "v/x" {
					got = q.Allocatable.String() + "/" + q.Available.String()
				}
			}
			if got != tt.device {
				t.Errorf("device %q, want %q", got, tt.device)
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	away := errors.New("away")
	s := &states{allocatable: []podres.Allocatable{{}}, pods: [][]podres.Pod{nil}, fail: away}
	if _, _, err := Read(t.Context(), s, &Input{Machine: machine(t, twoNodes()), Kubelet: static()}); !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
}
