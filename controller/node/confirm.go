package node

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
)

// ConfirmAnnotation on a Deployment in the manager's namespace releases removals that the budget holds. Its value must be a time
// (RFC 3339) after the removals were held, or later than the value that the annotation had at that time, since the client's clock
// can be wrong. A confirmation only applies to removals that were held when it was given.
const ConfirmAnnotation = assayv1alpha1.GroupName + "/confirm-removals"

// ConfirmAdditionsAnnotation releases the taints and conditions that the budget of health holds in the same way.
const ConfirmAdditionsAnnotation = assayv1alpha1.GroupName + "/confirm-additions"

// confirmEvery is how often the annotation is read while removals are held.
const confirmEvery = 30 * time.Second

// confirmations releases what a budget holds once an administrator has confirmed it. It implements manager.Runnable and runs on the leader.
type confirmations struct {
	live       client.Reader
	namespace  string
	annotation string
	breaker    *budget.Breaker
	waiting    prometheus.Gauge // the nodes that wait
	every      time.Duration    // see Options.ConfirmEvery
	confirmed  func()           // enqueues all nodes

	first map[string]string // by Deployment: value when something was first held; nil: nothing is
	used  map[string]string // by Deployment: value that was already used
}

// Start implements manager.Runnable.
func (c *confirmations) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.breaker.Holding():
		}
		for c.look(ctx) {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(cmp.Or(c.every, confirmEvery)):
			}
		}
	}
}

// look reads the annotations once. It reports whether something was held.
func (c *confirmations) look(ctx context.Context) bool {
	held, since := c.breaker.Held()
	c.waiting.Set(float64(held))
	if held == 0 {
		c.first = nil
		return false
	}
	if c.given(ctx, since) {
		logf.FromContext(ctx).Info("Released what an administrator confirmed", "annotation", c.annotation, "nodes", len(c.breaker.Confirm()))
		c.confirmed()
	}
	return true
}

// given reports whether an administrator has confirmed what is held.
func (c *confirmations) given(ctx context.Context, since time.Time) bool {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := c.live.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
		return false // forbidden or unavailable; removals go on after the hold time anyway, and additions in the next window
	}
	values := map[string]string{}
	for i := range list.Items {
		values[list.Items[i].Name] = list.Items[i].Annotations[c.annotation]
	}
	if c.first == nil {
		c.first = values
	}
	for name, value := range values {
		at, err := time.Parse(time.RFC3339, value)
		if err != nil || value == c.used[name] {
			continue
		}
		before, _ := time.Parse(time.RFC3339, c.first[name])
		// The value has a resolution of one second.
		if !at.Before(since.Truncate(time.Second)) || at.After(before) {
			c.used = values
			return true
		}
	}
	return false
}
