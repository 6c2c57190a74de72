package node

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
)

// ConfirmAnnotation on a Deployment of the manager's namespace lets removals go on that the budget holds back, if its value is
// a time (RFC 3339) at which they were held already, or a later one than it had when they began to be held, since the clock it
// was taken from may be wrong: one confirmation is good for what somebody has looked at, and not for what comes after it.
const ConfirmAnnotation = assayv1alpha1.GroupName + "/confirm-removals"

// confirmPoll is how often it is looked for a confirmation, and only while something is held.
const confirmPoll = 2 * time.Second

// confirmations lets through what an administrator has confirmed. It implements manager.Runnable, on the leader.
type confirmations struct {
	live      client.Reader
	namespace string
	breaker   *budget.Breaker
	metrics   *metrics
	confirmed func() // has all nodes looked at

	first map[string]string // Deployment -> value when something began to be held; nil: nothing is
	used  map[string]string // Deployment -> value that has confirmed something
}

// Start implements manager.Runnable.
func (c *confirmations) Start(ctx context.Context) error {
	ticker := time.NewTicker(confirmPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		c.look(ctx)
	}
}

// look looks for a confirmation once.
func (c *confirmations) look(ctx context.Context) {
	held, since := c.breaker.Held()
	c.metrics.waiting.Set(float64(held))
	if held == 0 {
		c.first = nil
		return
	}
	if !c.given(ctx, since) {
		return
	}
	logf.FromContext(ctx).Info("an administrator has confirmed removals", "nodes", len(c.breaker.Confirm()))
	c.confirmed()
}

// given reports whether somebody has confirmed since something is held.
func (c *confirmations) given(ctx context.Context, since time.Time) bool {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := c.live.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
		return false // not allowed, or away; removals go on by themselves after a while
	}
	values := map[string]string{}
	for i := range list.Items {
		values[list.Items[i].Name] = list.Items[i].Annotations[ConfirmAnnotation]
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
		// The value has no fractions of a second.
		if !at.Before(since.Truncate(time.Second)) || at.After(before) {
			c.used = values
			return true
		}
	}
	return false
}
