// Package nodecache caches Nodes in a compact form.
//
// A Node has more than a hundred labels of features, which take 10 kB as a map although most of them are the same on all nodes of a kind,
// as are its extended resources and the versions of its software. Informers of this package store these once. Handlers and readers get
// complete Nodes, which are built when they are needed.
package nodecache

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/stringmap"
	"github.com/assay-project/assay/rules/facts"
)

// Informers returns a constructor of informers that store Nodes in a compact form. Listing all Nodes builds all of them: see Names.
func Informers(next nodefeature.NewInformer) nodefeature.NewInformer {
	return func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*corev1.Node); !ok {
			return next(lw, object, resync, indexers)
		}
		return informer{next(lw, object, resync, building(indexers))}
	}
}

// Names returns the names of the Nodes in a cache, without building the Nodes. It waits until the cache is filled.
func Names(ctx context.Context, c cache.Informers) ([]string, error) {
	i, err := indexerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return i.ListKeys(), nil
}

// NamesBy is like Names for the Nodes with a value of an index, which was added with AddIndexers.
func NamesBy(ctx context.Context, c cache.Informers, index, value string) ([]string, error) {
	i, err := indexerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return i.IndexKeys(index, value)
}

// Get returns a Node of a cache, which the caller must not modify; nil: there is none.
func Get(ctx context.Context, cached client.Reader, name string) *corev1.Node {
	var node corev1.Node
	if cached.Get(ctx, client.ObjectKey{Name: name}, &node, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return &node
}

func indexerOf(ctx context.Context, c cache.Informers) (toolscache.Indexer, error) {
	i, err := c.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return nil, err
	}
	indexed, ok := i.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("cannot list the names of Nodes: %T has no indexer", i)
	}
	return indexed.GetIndexer(), nil
}

// compact is a stored Node. It is immutable except for built.
type compact struct {
	meta                  metav1.ObjectMeta // without labels and annotations
	labels, annotations   stringmap.Map
	capacity, allocatable stringmap.Map
	info                  unique.Handle[corev1.NodeSystemInfo] // without the boot ID
	bootID, providerID    string
	taints                []corev1.Taint
	statements            unique.Handle[string]  // type, status and reason of the conditions that have no more, as in declared
	conditions            []corev1.NodeCondition // the others
	declared              unique.Handle[string]  // features, each followed by a zero byte
	handlers              unique.Handle[string]  // runtime handlers in JSON
	rest                  *rest                  // nil: there is nothing else

	mu    sync.Mutex
	built weak.Pointer[corev1.Node] // handlers of one event get the same Node
}

// rest are parts of a Node that the transforms of the manager's informers remove.
type rest struct {
	spec   corev1.NodeSpec
	status corev1.NodeStatus
}

// GetObjectMeta implements metav1.ObjectMetaAccessor: client-go reads the key and the version of stored objects.
func (c *compact) GetObjectMeta() metav1.Object { return &c.meta }

// pack returns the stored form of an object.
func pack(object any) any {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object // it is packed already, or a tombstone
	}
	c := &compact{
		meta: n.ObjectMeta, labels: stringmap.Of(n.Labels), annotations: stringmap.Of(n.Annotations),
		capacity: amounts(n.Status.Capacity), allocatable: amounts(n.Status.Allocatable),
		bootID: n.Status.NodeInfo.BootID, providerID: n.Spec.ProviderID, taints: n.Spec.Taints,
		declared: unique.Make(joined(n.Status.DeclaredFeatures)), handlers: unique.Make(encoded(n.Status.RuntimeHandlers)),
	}
	c.meta.Labels, c.meta.Annotations = nil, nil
	var statements []string
	for _, condition := range n.Status.Conditions {
		if condition == facts.Statement(condition) {
			statements = append(statements, string(condition.Type), string(condition.Status), condition.Reason)
		} else {
			c.conditions = append(c.conditions, condition)
		}
	}
	c.statements = unique.Make(joined(statements))
	info := n.Status.NodeInfo
	info.BootID = ""
	c.info = unique.Make(info)
	left := rest{n.Spec, n.Status}
	left.spec.ProviderID, left.spec.Taints = "", nil
	left.status.Capacity, left.status.Allocatable, left.status.NodeInfo = nil, nil, corev1.NodeSystemInfo{}
	left.status.Conditions, left.status.DeclaredFeatures, left.status.RuntimeHandlers = nil, nil, nil
	if !reflect.ValueOf(left).IsZero() {
		c.rest = &left
	}
	return c
}

func amounts(list corev1.ResourceList) stringmap.Map {
	m := make(map[string]string, len(list))
	for name, amount := range list {
		m[string(name)] = amount.String()
	}
	return stringmap.Of(m)
}

func resources(amounts stringmap.Map) corev1.ResourceList {
	var out corev1.ResourceList
	for name, amount := range amounts.Strings() {
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[corev1.ResourceName(name)] = resource.MustParse(amount) // amounts wrote it
	}
	return out
}

func joined(list []string) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(s)
		b.WriteByte(0)
	}
	return b.String()
}

func separated(text string) (list []string) {
	for s := range strings.SplitSeq(strings.TrimSuffix(text, "\x00"), "\x00") {
		if text != "" {
			list = append(list, s)
		}
	}
	return list
}

func encoded(list []corev1.NodeRuntimeHandler) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // it has strings and booleans only
	}
	return string(text)
}

func decoded(text string) (list []corev1.NodeRuntimeHandler) {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		panic(err) // encoded wrote it
	}
	return list
}

// build returns the complete form of a stored object. Readers that do not copy it must not modify it, as in every cache.
func build(object any) any {
	switch o := object.(type) {
	case *compact:
		return o.build()
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = build(o.Obj)
		return o
	}
	return object
}

func (c *compact) build() *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.built.Value(); n != nil {
		return n
	}
	n := corev1.Node{ObjectMeta: c.meta}
	if c.rest != nil {
		n.Spec, n.Status = c.rest.spec, c.rest.status
	}
	n.Labels, n.Annotations = c.labels.Strings(), c.annotations.Strings()
	n.Spec.ProviderID, n.Spec.Taints = c.providerID, c.taints
	n.Status.Capacity, n.Status.Allocatable = resources(c.capacity), resources(c.allocatable)
	n.Status.NodeInfo = c.info.Value()
	n.Status.NodeInfo.BootID = c.bootID
	n.Status.DeclaredFeatures = separated(c.declared.Value())
	for said := range slices.Chunk(separated(c.statements.Value()), 3) {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeConditionType(said[0]), Status: corev1.ConditionStatus(said[1]), Reason: said[2]})
	}
	n.Status.Conditions = append(n.Status.Conditions, c.conditions...)
	n.Status.RuntimeHandlers = decoded(c.handlers.Value())
	c.built = weak.Make(&n)
	return &n
}

func buildAll(objects []any) []any {
	out := make([]any, len(objects))
	for i := range objects {
		out[i] = build(objects[i])
	}
	return out
}

// building returns indexers of stored objects.
func building(indexers toolscache.Indexers) toolscache.Indexers {
	out := make(toolscache.Indexers, len(indexers))
	for name, index := range indexers {
		out[name] = func(object any) ([]string, error) { return index(build(object)) }
	}
	return out
}
