package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// DroppedFeaturesAnnotation says on a NodeFeature which features its worker left out because they did not fit into the
// size budget: sorted names, separated by commas.
const DroppedFeaturesAnnotation = assayv1alpha1.GroupName + "/dropped-features"

// metadata is the part of an object's metadata that this package reads or writes.
type metadata struct {
	uid             types.UID
	resourceVersion string
	generation      int64
	labels          map[string]string
	annotations     map[string]string
	owners          []metav1.OwnerReference
}

// object is a NodeFeature as it is, or as it should be. Of one that should be, labels and annotations hold the keys that
// we own, with an empty value for one that must be absent.
type object struct {
	metadata
	spec    nfdv1alpha1.NodeFeatureSpec
	dropped []string
}

func metadataOf(m *metav1.ObjectMeta) metadata {
	return metadata{
		uid:             m.UID,
		resourceVersion: m.ResourceVersion,
		generation:      m.Generation,
		labels:          m.Labels,
		annotations:     m.Annotations,
		owners:          m.OwnerReferences,
	}
}

// build says what the cluster's object should be.
func (p *Publisher) build(ctx context.Context, id Identity, c Content) (*object, error) {
	owners, err := p.owners(ctx, id)
	if err != nil {
		return nil, err
	}
	spec := canonical(c)
	spec, dropped := fit(spec, p.opt.MaxBytes)
	if spec, err = p.share(ctx, id, spec); err != nil {
		return nil, err
	}
	return &object{
		metadata: metadata{
			labels: map[string]string{nfdv1alpha1.NodeNameLabel: id.Node},
			annotations: map[string]string{
				nfdv1alpha1.WorkerVersionAnnotation: p.opt.Version,
				nfdv1alpha1.WorkerPodUIDAnnotation:  id.PodUID,
				DroppedFeaturesAnnotation:           join(dropped),
			},
			owners: owners,
		},
		spec:    spec,
		dropped: dropped,
	}, nil
}

// owners returns the references for the owners that are known. One that is not known is left out rather than guessed: an
// owner with a wrong UID would make the garbage collector delete the object.
func (p *Publisher) owners(ctx context.Context, id Identity) ([]metav1.OwnerReference, error) {
	var refs []metav1.OwnerReference
	for _, o := range p.opt.Owners {
		switch o {
		case OwnerNode:
			if uid := p.nodeUID(id); uid != "" {
				refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: id.Node, UID: uid})
			}
		case OwnerPod:
			if id.Pod != "" && id.PodUID != "" {
				refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: id.Pod, UID: types.UID(id.PodUID)})
			}
		case OwnerDaemonSet:
			ds, err := p.daemonSet(ctx, id)
			if err != nil {
				return nil, err
			}
			refs = append(refs, ds...)
		}
	}
	return refs, nil
}

// nodeUID returns the UID of our Node. While we cannot find it out, the one that a worker before us wrote stays.
func (p *Publisher) nodeUID(id Identity) types.UID {
	if id.NodeUID != "" || p.live == nil {
		return types.UID(id.NodeUID)
	}
	for _, ref := range p.live.owners {
		if ref.APIVersion == "v1" && ref.Kind == "Node" && ref.Name == id.Node {
			return ref.UID
		}
	}
	return ""
}

// daemonSet returns a reference to the DaemonSet that our own pod belongs to, if there is one. It is looked up once: a pod
// never changes hands.
func (p *Publisher) daemonSet(ctx context.Context, id Identity) ([]metav1.OwnerReference, error) {
	if id.Pod == "" {
		return nil, nil
	}
	if p.live != nil {
		if have := slices.IndexFunc(p.live.owners, isDaemonSet); have >= 0 && p.live.annotations[nfdv1alpha1.WorkerPodUIDAnnotation] == id.PodUID {
			return []metav1.OwnerReference{p.live.owners[have]}, nil
		}
	}
	pod, err := p.client.metadata(ctx, "/api/v1/namespaces/"+p.opt.Namespace+"/pods/"+id.Pod)
	if err != nil {
		return nil, fmt.Errorf("get the DaemonSet of pod %s/%s: %w", p.opt.Namespace, id.Pod, err)
	}
	for _, ref := range pod.owners {
		if isDaemonSet(ref) {
			return []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}}, nil
		}
	}
	return nil, nil
}

func isDaemonSet(ref metav1.OwnerReference) bool {
	return ref.Kind == "DaemonSet" && strings.HasPrefix(ref.APIVersion, "apps/")
}

// strict reports whether the API server must refuse the object rather than drop fields that it does not know.
func (o *object) strict() bool { return len(o.spec.FeatureSets) > 0 }

// create returns the JSON of a new object.
func (o *object) create(namespace, name string) ([]byte, error) {
	present := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
		return m
	}
	nf := nfdv1alpha1.NodeFeature{
		TypeMeta: metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			Labels: present(o.labels), Annotations: present(o.annotations), OwnerReferences: o.owners,
		},
		Spec: o.spec,
	}
	body, err := json.Marshal(&nf)
	if err != nil {
		return nil, errors.Join(errors.New("encode NodeFeature"), err)
	}
	return body, nil
}

// canonical returns the spec that reads back from the API server as it was sent: absent maps are empty ones (a null would
// be pruned), and text is valid UTF-8, since JSON cannot hold anything else. Maps that need no change are shared.
func canonical(c Content) nfdv1alpha1.NodeFeatureSpec {
	in := c.Features
	out := nfdv1alpha1.Features{
		Flags:      make(map[string]nfdv1alpha1.FlagFeatureSet, len(in.Flags)),
		Attributes: make(map[string]nfdv1alpha1.AttributeFeatureSet, len(in.Attributes)),
		Instances:  make(map[string]nfdv1alpha1.InstanceFeatureSet, len(in.Instances)),
	}
	for name, set := range in.Flags {
		out.Flags[valid(name)] = nfdv1alpha1.FlagFeatureSet{Elements: validMap(set.Elements, func(nfdv1alpha1.Nil) bool { return true }, func(v nfdv1alpha1.Nil) nfdv1alpha1.Nil { return v })}
	}
	for name, set := range in.Attributes {
		out.Attributes[valid(name)] = nfdv1alpha1.AttributeFeatureSet{Elements: validText(set.Elements)}
	}
	for name, set := range in.Instances {
		elements := make([]nfdv1alpha1.InstanceFeature, len(set.Elements))
		for i, instance := range set.Elements {
			elements[i].Attributes = validText(instance.Attributes)
		}
		out.Instances[valid(name)] = nfdv1alpha1.InstanceFeatureSet{Elements: elements}
	}
	return nfdv1alpha1.NodeFeatureSpec{Features: out, Labels: validText(c.Labels)}
}

func validText(m map[string]string) map[string]string { return validMap(m, utf8.ValidString, valid) }

// validMap returns m itself if there is nothing to repair.
func validMap[V any](m map[string]V, ok func(V) bool, repair func(V) V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	for k, v := range m {
		if !utf8.ValidString(k) || !ok(v) {
			out := make(map[string]V, len(m))
			for _, k := range slices.Sorted(maps.Keys(m)) {
				out[valid(k)] = repair(m[k])
			}
			return out
		}
	}
	return m
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func join(names []string) string { return strings.Join(names, ",") }
