package serving

import (
	"context"
	"time"

	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// Scheduler is the name of the second scheduler, schedulerLease that of its Lease.
	Scheduler      = "assay"
	schedulerLease = "assay-scheduler"
	// leaseLate is the age after which a Lease is considered abandoned. kube-scheduler renews its Lease within 10 s.
	leaseLate = time.Minute
	// policy and webhook are the names of what adds labels of requests to node selectors.
	policy = "assay-feature-request"
	// Webhook is the name of the MutatingWebhookConfiguration.
	Webhook = "assay-feature-requests"
)

// Load returns what the cluster has for pods that require features, except for schedulers.
func Load(ctx context.Context, c *cluster.Client) (*Installed, error) {
	out := &Installed{RuleLabels: map[string]bool{}}
	has, err := c.HasMutatingPolicy(ctx, policy)
	if err != nil {
		return nil, err
	}
	if has {
		out.Policy = policy
	}
	configs, err := c.MutatingWebhooks(ctx)
	if err != nil {
		return nil, err
	}
	for i := range configs {
		if configs[i].Name == Webhook && len(configs[i].Webhooks) > 0 {
			out.Webhook = Webhook
		}
	}
	list, err := c.Rules(ctx)
	if err != nil {
		return nil, err
	}
	if out.Policies, err = selecting(ctx, c); err != nil {
		return nil, err
	}
	names := keys.Policy{}
	for i := range list {
		for _, rule := range list[i].Spec.Rules {
			for label := range rule.Labels {
				out.RuleLabels[names.Qualify(label)] = true
			}
		}
	}
	return out, nil
}

// selecting returns a function that returns the policies that select a pod, or nil if there are none.
func selecting(ctx context.Context, c *cluster.Client) (func(string, map[string]string) []*requirements.Policy, error) {
	list, err := c.Policies(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	namespaces, err := c.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	known := podrequirements.New(rules.Options{})
	for i := range list {
		known.PutPolicy(&list[i])
	}
	for i := range namespaces {
		known.PutNamespace(namespaces[i].Name, namespaces[i].Labels)
	}
	return known.Policies, nil
}

// SecondScheduler reports whether the second scheduler holds its Lease in a namespace.
func SecondScheduler(ctx context.Context, c *cluster.Client, namespace string) (bool, error) {
	leases, err := c.Leases(ctx, namespace)
	if err != nil {
		return false, err
	}
	for i := range leases {
		// A scheduler that shuts down releases its Lease: it has no holder and was just renewed.
		if l := &leases[i]; l.Name == schedulerLease && ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil {
			return c.Now().Sub(l.Spec.RenewTime.Time) < leaseLate, nil
		}
	}
	return false, nil
}
