package compile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/requirements"
)

// start compiles every object once before the registry is ready. If nodes were evaluated with part of the rules, they would lose
// the outputs of the others.
type start struct {
	rules *Rules
	cache cache.Cache
	// namespace is Assay's own, and keptName the name of the ConfigMap in which an earlier process has stored what it accepted.
	namespace, keptName string
	// baselines: see Options.Baselines.
	baselines bool
}

// retryStart is the delay before objects are read again that could not be read at startup.
const retryStart = time.Second

// run compiles all objects, then follows the definitions until the context ends.
func (s *start) run(ctx context.Context) error {
	if !s.cache.WaitForCacheSync(ctx) {
		return errors.New("stopped before the caches were filled")
	}
	if err := s.hearOfRemovals(ctx); err != nil {
		return err
	}
	untilDone(ctx, "definitions", func() error { return s.load(ctx) })
	s.assembleAll(ctx)
	release, err := s.rules.turn.Take(ctx)
	if err != nil {
		return nil //nolint:nilerr // being stopped is not an error
	}
	s.rules.started = true
	release()
	s.rules.registry.Ready()
	logf.FromContext(ctx).Info("Compiled all rules")
	return s.followDefinitions(ctx)
}

// hearOfRemovals removes the rules of deleted objects. The controller does so too, but it starts some time after the caches are
// filled and would miss an object that is deleted between that time and its first list.
func (s *start) hearOfRemovals(ctx context.Context) error {
	err := s.onDelete(ctx, &nfdv1alpha1.NodeFeatureRule{}, func(name string) string { return name })
	if err == nil && s.baselines {
		err = s.onDelete(ctx, &assayv1alpha1.NodeBaseline{}, baseline.RuleName)
	}
	if err != nil || !s.rules.Materializes() {
		return err
	}
	return s.onDelete(ctx, &assayv1alpha1.NodeFeatureRequest{}, func(key string) string {
		namespace, name, _ := strings.Cut(key, "/")
		return requirements.RuleName(namespace, name)
	})
}

func (s *start) onDelete(ctx context.Context, kind client.Object, ruleName func(key string) string) error {
	informer, err := s.cache.GetInformer(ctx, kind)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil { // without a namespace the key is the name
			s.assemble(ctx, ruleName(key))
		}
	}})
	return err
}

// assembleAll compiles all objects: those that exist, and those that are known and may be gone.
func (s *start) assembleAll(ctx context.Context) {
	var list nfdv1alpha1.NodeFeatureRuleList
	s.list(ctx, &list)
	slices.SortFunc(list.Items, func(a, b nfdv1alpha1.NodeFeatureRule) int { return assembly.OldestFirst(&a, &b) })
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	if s.baselines {
		var list assayv1alpha1.NodeBaselineList
		s.list(ctx, &list)
		slices.SortFunc(list.Items, func(a, b assayv1alpha1.NodeBaseline) int { return assembly.OldestFirst(&a, &b) })
		for i := range list.Items {
			names = append(names, baseline.RuleName(list.Items[i].Name))
		}
	}
	if s.rules.Materializes() {
		names = append(names, s.requests(ctx)...)
	}
	for _, name := range append(names, s.rules.without(names)...) {
		s.assemble(ctx, name)
	}
}

// list lists the objects of a kind in the cache.
func (s *start) list(ctx context.Context, into client.ObjectList) {
	untilDone(ctx, fmt.Sprintf("%T", into), func() error { return s.cache.List(ctx, into, client.UnsafeDisableDeepCopy) })
}

// requests returns the rules of the requests that have a place.
func (s *start) requests(ctx context.Context) (names []string) {
	untilDone(ctx, "NodeFeatureRequests", func() error {
		release, err := s.rules.turn.Take(ctx)
		if err != nil {
			return err
		}
		defer release()
		names, err = s.rules.loadRequests(ctx)
		return err
	})
	return names
}

// assemble compiles an object.
func (s *start) assemble(ctx context.Context, name string) {
	untilDone(ctx, name, func() error { return s.rules.refresh(ctx, name) })
}

// untilDone repeats what fails until it succeeds or the context ends: while the API server does not answer, nothing is decided.
func untilDone(ctx context.Context, what string, f func() error) {
	for ctx.Err() == nil {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		logf.FromContext(ctx).Error(err, "Cannot compile rules; retrying", "object", what)
		select {
		case <-ctx.Done():
		case <-time.After(retryStart):
		}
	}
}
