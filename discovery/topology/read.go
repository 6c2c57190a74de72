package topology

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/assay-project/assay/discovery/podres"
)

// Lister answers as a kubelet does; *podres.Client is one.
type Lister interface {
	List(ctx context.Context) ([]podres.Pod, error)
	Allocatable(ctx context.Context) (*podres.Allocatable, error)
}

// MaxReads is the maximum number of times that Read reads until both answers are of the same time. Devices change rarely, so that the
// second time nearly always succeeds; after the third, a device that the kubelet does not list is probably unhealthy.
const MaxReads = 3

// Read reads what is allocatable and what pods hold, in one state of the kubelet: what is allocatable is read before and after, and
// whatever pods hold has to be part of it. It sets in.Allocatable and in.Pods, and returns the topology and how often it had to read.
func Read(ctx context.Context, kubelet Lister, in *Input) (r *Result, reads int, err error) {
	before, err := kubelet.Allocatable(ctx)
	if err != nil {
		return nil, 0, err
	}
	for reads = 1; ; reads++ {
		pods, err := kubelet.List(ctx)
		if err != nil {
			return nil, reads, err
		}
		after, err := kubelet.Allocatable(ctx)
		if err != nil {
			return nil, reads, err
		}
		in.Pods, in.Allocatable = pods, before
		old := Build(in).Canonical()
		in.Allocatable = after
		r = Build(in)
		if reads == MaxReads || len(r.Unknown) == 0 && bytes.Equal(old, r.Canonical()) {
			return r, reads, nil
		}
		before = after
	}
}

// Canonical returns the JSON of the content, which is the same for the same content.
func (c *Content) Canonical() []byte {
	data, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("encode a topology: %v", err)) // strings and numbers only
	}
	return data
}
