package doctor

import (
	"context"
	"fmt"
	"time"
)

// The limits of the API server's speed.
const (
	// slowAnswer is the objective of Kubernetes for 99 % of the requests about one object
	// (https://github.com/kubernetes/community/blob/master/sig-scalability/slos/api_call_latency.md).
	slowAnswer = time.Second
	// speedTries is the number of requests, of which the fastest counts: one alone can be slow because of the doctor's own machine.
	speedTries = 3
)

// speed checks that the API server answers a small request in time. If it does not, Leases that are not renewed, webhooks that time out and
// labels that are late are consequences.
func (e *examination) speed(ctx context.Context) error {
	fastest := time.Duration(-1)
	for range speedTries {
		start := e.now()
		if _, err := e.c.Leases(ctx, e.home()); err != nil {
			return err
		}
		if took := e.now().Sub(start); fastest < 0 || took < fastest {
			fastest = took
		}
		if fastest < slowAnswer {
			return nil
		}
	}
	e.report("api", Error, fmt.Sprintf("the API server took %s or more for each of %d small requests: labels are late, and Leases and reviews can time out",
		fastest.Round(100*time.Millisecond), speedTries), "kubectl get --raw '/readyz?verbose', and see apiserver_request_duration_seconds and the load of etcd")
	return nil
}

// home returns the namespace of a workload of the installation.
func (e *examination) home() string {
	if len(e.deployments) > 0 {
		return e.deployments[0].Namespace
	}
	if len(e.daemonSets) > 0 {
		return e.daemonSets[0].Namespace
	}
	return e.namespace
}
