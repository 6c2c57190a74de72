package main

import (
	"context"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/asks"
	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/admit"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/webhook"
)

// schedulingFlags are the webhook's flags for pods and workloads that ask for features.
type schedulingFlags struct {
	scheduling, marker bool
}

func (f *schedulingFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.scheduling, "scheduling", false, "also review pods and workloads that ask for features; keeps the features of all nodes in memory")
	flags.BoolVar(&f.marker, "scheduling-marker", false, "mark pods that the extender has to be asked about, for an extender of the default scheduler")
}

// installer makes the webhook configurations for pods and workloads, nil if there shall be none.
func (f *schedulingFlags) installer(c kubernetes.Interface) func(context.Context, webhook.ConfigurationOptions) error {
	if !f.scheduling {
		return nil
	}
	return func(ctx context.Context, o webhook.ConfigurationOptions) error {
		api := c.AdmissionregistrationV1()
		return webhook.InstallScheduling(ctx, api.MutatingWebhookConfigurations(), api.ValidatingWebhookConfigurations(), o)
	}
}

// review gives the webhook what it looks up about pods and nodes.
func (f *schedulingFlags) review(mgr ctrl.Manager, namespace, instance string, o *webhook.Options) error {
	if !f.scheduling {
		return nil
	}
	view, known := fleet.New(), asks.New(o.Rules)
	exact := &labelCache{reader: mgr.GetCache(), opt: o.Rules}
	follower := follow.New(view, follow.Options{
		Gather: feed.Gather{
			Namespace: namespace, Keys: o.Rules.Keys, Record: plan.Record{Instance: instance, Bare: o.Rules.Keys.DisableAutoPrefix},
		},
		Rules: o.Rules,
		OnChange: func(node string) {
			if node == "" {
				exact.current.Store(nil)
			}
		},
	})
	o.Scheduling = &webhook.Scheduling{
		Asks: known, View: view, Labels: exact.labels, Settings: admit.Settings{Marker: f.marker},
		Namespace: func(name string) map[string]string {
			ns := namespaceMetadata()
			if err := mgr.GetCache().Get(context.Background(), client.ObjectKey{Name: name}, ns); err != nil { // from memory
				return nil
			}
			return ns.Labels
		},
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := follow.Asks(ctx, mgr.GetCache(), known); err != nil {
			return err
		}
		if err := follower.Sync(ctx, mgr.GetCache()); err != nil {
			return err
		}
		exact.ready.Store(true)
		return follower.Run(ctx)
	}))
}

// labelCache knows which requirements are the same as a label, until rules change.
type labelCache struct {
	reader  client.Reader
	opt     rules.Options
	ready   atomic.Bool
	current atomic.Pointer[admit.Labels]
}

func (l *labelCache) labels() admit.Labels {
	if known := l.current.Load(); known != nil {
		return *known
	}
	if !l.ready.Load() {
		return nil // of half of the rules, a label might seem to be written by one alone
	}
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := l.reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	found := admit.LabelsOf(list.Items, l.opt)
	l.current.Store(&found)
	return found
}
