package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// minSharedBytes is the minimum size of a feature that is shared. A name takes about 60 bytes in each NodeFeature, and a
	// NodeFeatureSet about 1 kB in each client that caches it.
	minSharedBytes = 1 << 10
	// maxSets is the maximum number of sets that a NodeFeature can name, as in its CRD.
	maxSets = 64
	// firstMarkerInterval is the mean delay after which a worker that found no marker at startup reads it again: Helm starts
	// workers before the controller, which announces within seconds that it reads sets. Each further interval is twice as long, up to
	// checkInterval: the controller may also be an older one, which never does.
	firstMarkerInterval = 10 * time.Second
	// switchInterval is the maximum delay before a worker that finds a whole NodeFeature shares its features. All workers of a fleet
	// get a new configuration within a minute, and each of them is about to look for the same sets. A new node does not wait.
	switchInterval = 2 * time.Minute
	// inlineInterval is the mean duration for which a feature is published inline after its set could not be created.
	inlineInterval = 10 * time.Minute
)

// notShared lists features that are published inline independent of their size, and why. A name that ends in a dot matches all
// features with this prefix.
var notShared = map[string]string{
	"network.virtual":         "interfaces come and go with pods",
	"system.name":             "names one node",
	nfdv1alpha1.BootFeature:   "names one boot of one node",
	nfdv1alpha1.UnreadFeature: "lasts until the sources of one node have answered",
	"local.":                  "files of an administrator or a device plugin may hold anything, including serial numbers and times",
}

func shareable(feature string) bool {
	if _, ok := notShared[feature]; ok {
		return false
	}
	domain, _, _ := strings.Cut(feature, ".")
	_, ok := notShared[domain+"."]
	return !ok
}

// shared is the state of a Publisher that concerns feature sets.
type shared struct {
	on     bool                 // the controller supports sets, and NodeFeatures can name them
	encode bool                 // the controller also reads encoded instances
	pause  time.Duration        // mean delay before next; 0: the marker has not been read yet
	next   time.Time            // when to read the marker again, unless on
	turned bool                 // the delay before the first change to sets has been determined
	known  []string             // sets that existed when the marker was read; nil after the first publication
	names  map[string]sharedSet // by kind and name of the feature, for the latest content
	inline map[string]time.Time // sets that could not be created, and when to retry
}

// sharedSet is a feature that is, or could be, published as a set.
type sharedSet struct {
	name     string
	features nfdv1alpha1.Features // exactly one
	bytes    int
}

// share moves large features to existing sets, and names the sets in the spec. It modifies the maps of the spec, but not the sets
// in them.
func (p *Publisher) share(ctx context.Context, id Identity, spec nfdv1alpha1.NodeFeatureSpec) (nfdv1alpha1.NodeFeatureSpec, error) {
	on, err := p.mayShare(ctx)
	if !on || err != nil {
		return spec, err
	}
	sets, err := p.sets(&spec.Features)
	if err != nil {
		return spec, err
	}
	for _, set := range sets {
		if len(spec.FeatureSets) == maxSets {
			break
		}
		ok, err := p.ensure(ctx, id, set)
		if err != nil {
			return spec, err
		}
		if ok {
			remove(&spec.Features, &set.features)
			spec.FeatureSets = append(spec.FeatureSets, set.name)
		}
	}
	p.shared.known = nil
	slices.Sort(spec.FeatureSets)
	if p.shared.encode && len(spec.FeatureSets) > 0 {
		err = encode(&spec)
	}
	return spec, err
}

// encode moves the instances that are in no set to one string. Those of a node with 60 pods take the API server half of the CPU time and
// of the memory of its NodeFeature if they are objects. A NodeFeature without sets has no encoded instances, so whatever
// reads or detects the one also finds the other.
func encode(spec *nfdv1alpha1.NodeFeatureSpec) error {
	if len(spec.Features.Instances) == 0 {
		return nil
	}
	encoded := make(map[string][]map[string]string, len(spec.Features.Instances))
	for name, set := range spec.Features.Instances {
		list := make([]map[string]string, len(set.Elements)) // not nil, which would be null
		for i := range set.Elements {
			list[i] = set.Elements[i].Attributes
		}
		encoded[name] = list
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		return err
	}
	spec.EncodedInstances, spec.Features.Instances = string(text), map[string]nfdv1alpha1.InstanceFeatureSet{}
	return nil
}

// mayShare reports whether the controller supports sets: it then maintains a marker ConfigMap. For an older controller the node
// would have no large features.
func (p *Publisher) mayShare(ctx context.Context) (bool, error) {
	now := p.opt.Clock.Now()
	if !p.shared.turned && p.live != nil && len(p.live.spec.FeatureSets) == 0 {
		p.shared.next = now.Add(time.Duration(p.opt.Rand() * float64(switchInterval)))
	}
	p.shared.turned = true
	if !p.opt.Share || p.shared.on || now.Before(p.shared.next) {
		return p.opt.Share && p.shared.on, nil
	}
	path := "/api/v1/namespaces/" + url.PathEscape(p.opt.Namespace) + "/configmaps/" + assayv1alpha1.FeatureSetMarker
	meta, err := p.client.metadata(ctx, path+ofCache)
	if err != nil && !hasCode(err, http.StatusNotFound) && !hasCode(err, http.StatusForbidden) {
		return false, fmt.Errorf("read the marker for feature sets: %w", err)
	}
	announced := err == nil && meta.annotations[assayv1alpha1.FeatureSetFormatAnnotation] == featureset.Version
	first := p.shared.pause == 0
	if p.shared.on = announced; announced {
		if p.shared.on, err = p.runs(ctx, meta.annotations[assayv1alpha1.AnnouncedByAnnotation]); err != nil {
			return false, err
		}
	}
	p.shared.encode = meta.annotations[assayv1alpha1.EncodedInstancesAnnotation] == assayv1alpha1.EncodedInstancesEnabled
	p.shared.known = strings.Split(meta.annotations[assayv1alpha1.KnownFeatureSetsAnnotation], ",")
	p.shared.pause = min(max(2*p.shared.pause, firstMarkerInterval), checkInterval)
	p.shared.next = now.Add(p.jittered(p.shared.pause))
	// While leaders change, the announcement is that of the previous one for some seconds. A NodeFeature that has sets keeps them until
	// the next read.
	return p.shared.on || announced && first && p.live != nil && len(p.live.spec.FeatureSets) > 0, nil
}

// runs reports whether the controller that wrote the announcement holds its Lease.
func (p *Publisher) runs(ctx context.Context, announcer string) (bool, error) {
	lease, holder, ok := strings.Cut(announcer, "/")
	if !ok {
		return true, nil // a controller without leader election
	}
	current, err := p.client.leaseHolder(ctx, p.opt.Namespace, lease)
	switch {
	case hasCode(err, http.StatusForbidden):
		p.opt.Observe(Event{Notice: fmt.Sprintf("cannot verify that the controller supports feature sets; publishing all features in the NodeFeature: %v", err)})
	case err != nil && !hasCode(err, http.StatusNotFound):
		return false, fmt.Errorf("read the Lease of the controller that announced feature sets: %w", err)
	}
	return err == nil && current == holder, nil
}

// sets returns the features that should be published as sets, largest first.
func (p *Publisher) sets(f *nfdv1alpha1.Features) ([]sharedSet, error) {
	var out []sharedSet
	names := map[string]sharedSet{}
	add := func(kind, feature string, bytes int, features nfdv1alpha1.Features) error {
		if bytes < minSharedBytes || !shareable(feature) {
			return nil
		}
		set := sharedSet{features: complete(features), bytes: bytes}
		key := kind + " " + feature
		if before, ok := p.shared.names[key]; ok && len(diffFeatures(&before.features, &set.features)) == 0 {
			set.name = before.name
		} else {
			var err error
			if set.name, err = featureset.Name(&set.features); err != nil {
				return err
			}
		}
		names[key] = set
		out = append(out, set)
		return nil
	}
	for name, set := range f.Flags {
		if err := add("flags", name, sizeOf(set.Elements, flagSize), nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{name: set}}); err != nil {
			return nil, err
		}
	}
	for name, set := range f.Attributes {
		if err := add("attributes", name, sizeOf(set.Elements, textSize), nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{name: set}}); err != nil {
			return nil, err
		}
	}
	for name, set := range f.Instances {
		if err := add("instances", name, instancesSize(set.Elements), nfdv1alpha1.Features{Instances: map[string]nfdv1alpha1.InstanceFeatureSet{name: set}}); err != nil {
			return nil, err
		}
	}
	p.shared.names = names
	slices.SortFunc(out, func(a, b sharedSet) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name)) })
	return out, nil
}

// complete replaces nil maps, since JSON null is not valid for them.
func complete(f nfdv1alpha1.Features) nfdv1alpha1.Features {
	if f.Flags == nil {
		f.Flags = map[string]nfdv1alpha1.FlagFeatureSet{}
	}
	if f.Attributes == nil {
		f.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{}
	}
	if f.Instances == nil {
		f.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{}
	}
	return f
}

// remove removes a feature that is published as a set.
func remove(from, set *nfdv1alpha1.Features) {
	for name := range set.Flags {
		delete(from.Flags, name)
	}
	for name := range set.Attributes {
		delete(from.Attributes, name)
	}
	for name := range set.Instances {
		delete(from.Instances, name)
	}
}

// ensure creates a set if necessary, and reports whether it exists. A set that the stored NodeFeature names, or the controller lists,
// exists unless the controller reports it as missing. It counts as missing if the controller asks to publish the feature inline.
func (p *Publisher) ensure(ctx context.Context, id Identity, set sharedSet) (bool, error) {
	now := p.opt.Clock.Now()
	if slices.Contains(p.missing(), assayv1alpha1.InlineFeatureSet+set.name) {
		p.keepInline(set.name, now)
		return false, nil
	}
	named := p.live != nil && slices.Contains(p.live.spec.FeatureSets, set.name) || slices.Contains(p.shared.known, set.name)
	if named && !slices.Contains(p.missing(), set.name) {
		return true, nil
	}
	if now.Before(p.shared.inline[set.name]) {
		return false, nil
	}
	err := p.client.exists(ctx, p.opt.Namespace, set.name)
	if hasCode(err, http.StatusNotFound) {
		err = p.createSet(ctx, id, set)
	}
	if err == nil {
		delete(p.shared.inline, set.name)
		return true, nil
	}
	if !refused(err) {
		return false, fmt.Errorf("create NodeFeatureSet %s/%s: %w", p.opt.Namespace, set.name, err)
	}
	p.keepInline(set.name, now)
	p.opt.Observe(Event{Notice: fmt.Sprintf("cannot create NodeFeatureSet %s; publishing its feature in the NodeFeature: %v", set.name, err)})
	return false, nil
}

// keepInline publishes a feature in the NodeFeature for some time.
func (p *Publisher) keepInline(set string, now time.Time) {
	if p.shared.inline == nil {
		p.shared.inline = map[string]time.Time{}
	}
	p.shared.inline[set] = now.Add(p.jittered(inlineInterval))
}

func (p *Publisher) createSet(ctx context.Context, id Identity, set sharedSet) error {
	body, err := json.Marshal(&assayv1alpha1.NodeFeatureSet{
		TypeMeta: metav1.TypeMeta{APIVersion: assayv1alpha1.GroupVersion.String(), Kind: "NodeFeatureSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name: set.name, Namespace: p.opt.Namespace, Labels: map[string]string{assayv1alpha1.CreatedByNodeLabel: id.Node},
		},
		Spec: assayv1alpha1.NodeFeatureSetSpec{Features: set.features},
	})
	if err != nil {
		return err
	}
	err = p.client.createSet(ctx, p.opt.Namespace, body)
	if hasCode(err, http.StatusConflict) {
		return nil // another worker was faster
	}
	return err
}

// refused reports whether the API server will reject a set for some time: because of authorization, quota, size, validation or
// load, or because the kind is unknown.
func refused(err error) bool {
	for _, code := range []int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
		http.StatusTooManyRequests,
	} {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}

// missing returns the sets that the controller reports as missing.
func (p *Publisher) missing() []string {
	if p.live == nil || p.live.annotations[assayv1alpha1.MissingFeatureSetsAnnotation] == "" {
		return nil
	}
	return strings.Split(p.live.annotations[assayv1alpha1.MissingFeatureSetsAnnotation], ",")
}

// unnamed reports whether the API server rejects a NodeFeature because it names sets, and records that: in NFD's CRD the field is
// unknown. Without strict validation the field would be dropped, and the features with it.
func (p *Publisher) unnamed(want *object, err error) bool {
	if len(want.spec.FeatureSets) == 0 || !hasCode(err, http.StatusBadRequest) && !hasCode(err, http.StatusUnprocessableEntity) {
		return false
	}
	p.shared.on, p.shared.next = false, p.opt.Clock.Now().Add(p.jittered(checkInterval))
	p.opt.Observe(Event{Notice: fmt.Sprintf(
		"NodeFeatures cannot name feature sets; publishing all features in the NodeFeature; check that Assay's CustomResourceDefinition nodefeatures.%s is installed: %v",
		nfdv1alpha1.GroupName, err)})
	return true
}

// again returns the delay until sharing should be attempted again; 0: no attempt is needed.
func (p *Publisher) again() time.Duration {
	if !p.opt.Share {
		return 0
	}
	now := p.opt.Clock.Now()
	var due time.Time
	if !p.shared.on {
		due = p.shared.next
	}
	for name, at := range p.shared.inline {
		if !p.wants(name) {
			delete(p.shared.inline, name)
		} else if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(now), time.Second)
}

func (p *Publisher) wants(set string) bool {
	for _, s := range p.shared.names {
		if s.name == set {
			return true
		}
	}
	return false
}
