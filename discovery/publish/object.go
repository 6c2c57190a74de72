package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// DroppedFeaturesAnnotation on a NodeFeature lists the features that its worker dropped because they exceed the size budget: sorted
// names, separated by commas.
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

// build returns the desired object.
func (p *Publisher) build(ctx context.Context, id Identity, c Content) (*object, error) {
	owners, err := p.owners(ctx, id)
	if err != nil {
		return nil, err
	}
	spec := canonical(c)
	spec, dropped := fit(spec, p.opt.MaxBytes)
	p.leftOut = dropped
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
				assayv1alpha1.FeatureSetsAnnotation: number(len(spec.FeatureSets)),

				assayv1alpha1.InvalidConfigurationAnnotation: strings.ToValidUTF8(c.Rejected[:min(len(c.Rejected), maxRejectedBytes)], ""),
			},
			owners: owners,
		},
		spec: spec,
	}, nil
}

// number returns a number as a string, or an empty one for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// owners returns references to the known owners. It omits unknown ones: for an owner with a wrong UID the garbage collector would
// delete the object.
func (p *Publisher) owners(ctx context.Context, id Identity) ([]metav1.OwnerReference, error) {
	var refs []metav1.OwnerReference
	for _, o := range p.opt.Owners {
		switch o {
		case OwnerNode:
			refs = append(refs, p.ownedByNode(id)...)
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

// ownedByNode returns a reference to the Node, unless its UID is unknown.
func (k *keeper[C, S]) ownedByNode(id Identity) []metav1.OwnerReference {
	uid := k.nodeUID(id)
	if uid == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: id.Node, UID: uid}}
}

// nodeUID returns the UID of the worker's Node. If it cannot be determined, it returns the one that a previous worker wrote.
func (k *keeper[C, S]) nodeUID(id Identity) types.UID {
	if id.NodeUID != "" || k.live == nil {
		return types.UID(id.NodeUID)
	}
	for _, ref := range k.live.owners {
		if ref.APIVersion == "v1" && ref.Kind == "Node" && ref.Name == id.Node {
			return ref.UID
		}
	}
	return ""
}

// daemonSet returns a reference to the DaemonSet of the worker's pod, if there is one. It is read once, since a pod's owner does
// not change.
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

// get reads a NodeFeature.
func (p *Publisher) get(ctx context.Context, name string, cached bool) (*object, error) {
	var nf nfdv1alpha1.NodeFeature
	path := p.path(name)
	if cached {
		path += ofCache
	}
	if err := p.client.do(ctx, http.MethodGet, path, "application/json", "", nil, &nf); err != nil {
		return nil, err
	}
	return &object{metadata: metadataOf(&nf.ObjectMeta), spec: nf.Spec}, nil
}

// create returns the JSON of a new object.
func (p *Publisher) create(want *object, name string) ([]byte, error) {
	nf := nfdv1alpha1.NodeFeature{
		TypeMeta: metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeature"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.opt.Namespace,
			Labels: present(want.labels), Annotations: present(want.annotations), OwnerReferences: want.owners,
		},
		Spec: want.spec,
	}
	body, err := json.Marshal(&nf)
	if err != nil {
		return nil, errors.Join(errors.New("encode NodeFeature"), err)
	}
	return body, nil
}

// present returns the keys that must not be absent.
func present(m map[string]string) map[string]string {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
	return m
}

// canonical returns the spec as the API server will return it: absent maps are empty (a null would be pruned), and strings are
// valid UTF-8, as JSON requires. Maps that need no change are shared.
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
