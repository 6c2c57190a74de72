package rule

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
)

// kept is what an object last came to. It is kept as long as the object cannot be resolved: a manager that restarts meanwhile
// would otherwise take its labels away.
//
// A finalizer on templates that are in use would be the other way. It was not taken: it makes `kubectl delete -f directory`
// hang, depending on the order of the files, and the removal of Assay's definitions too once no manager runs that could take
// it off; and it does not help against the other ways to lose a base, an edit that a pin refuses or a cycle. So a template may
// go at any time: nothing is lost on nodes, Resolved=False and an Event on each object that is based on it say so, and the
// labels go with the object itself.
//
// Rules from Secrets are not kept: they are read again.
type kept struct {
	UID     types.UID                        `json:"uid"` // an object of the same name may be another
	Spec    *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	Hash    string                           `json:"hash"`
	Origins []nfdv1alpha1.RuleOrigin         `json:"origins,omitempty"`
}

const (
	// keptName is the ConfigMap of the manager's namespace that holds them, one key an object: compressed JSON. One of a fixed
	// name, so that the manager need not be allowed to write others.
	keptName = "assay-kept-rules"
	// maxKept bounds what one of them is decompressed to, in bytes.
	maxKept = 4 * compose.MaxResult
	// maxKeptTogether is how many bytes they may have together; a ConfigMap holds 1 MiB. Objects beyond it are not kept.
	maxKeptTogether = 900 << 10
)

// restore reads what was kept of an object; nil if there is nothing.
func (c *compiler) restore(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*kept, error) {
	var m corev1.ConfigMap
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.opt.Namespace, Name: keptName}, &m)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if k := unpack(m.BinaryData[obj.Name]); k != nil && k.UID == obj.UID {
		return k, nil
	}
	return nil, nil
}

// keeper writes the ConfigMap. It is safe for concurrent use.
type keeper struct {
	client    client.Client
	live      client.Reader
	namespace string

	mu     sync.Mutex
	loaded bool
	there  bool              // the ConfigMap exists
	have   map[string]string // object -> UID and hash of what is kept of it
	size   map[string]int
}

// keep sees to it that an object is kept, or, without anything to keep, that it is not. It asks the API server for nothing as
// long as there is nothing to do.
func (k *keeper) keep(ctx context.Context, object string, what *kept) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return err
	}
	if what == nil {
		if _, ok := k.have[object]; !ok {
			return nil
		}
		return k.write(ctx, object, nil, "")
	}
	version := string(what.UID) + " " + what.Hash
	if k.have[object] == version {
		return nil
	}
	data := what.pack()
	total := len(data)
	for name, n := range k.size {
		if name != object {
			total += n
		}
	}
	if total > maxKeptTogether {
		logf.FromContext(ctx).Info("too much is not resolved to keep all of it; a restart would take what this object gave", "object", object)
		return nil
	}
	return k.write(ctx, object, data, version)
}

// load reads what an earlier manager has kept. Of most clusters there is nothing, which the cache knows.
func (k *keeper) load(ctx context.Context) error {
	if k.loaded {
		return nil
	}
	k.have, k.size, k.there = map[string]string{}, map[string]int{}, false
	key := client.ObjectKey{Namespace: k.namespace, Name: keptName}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	var m corev1.ConfigMap
	err := k.client.Get(ctx, key, head)
	if err == nil {
		err = k.live.Get(ctx, key, &m)
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	k.there = err == nil
	for object, data := range m.BinaryData {
		version := ""
		if old := unpack(data); old != nil {
			version = string(old.UID) + " " + old.Hash
		}
		k.have[object], k.size[object] = version, len(data)
	}
	k.loaded = true
	return k.sweep(ctx)
}

// sweep forgets objects that went while no manager ran.
func (k *keeper) sweep(ctx context.Context) error {
	for object := range k.have {
		var r nfdv1alpha1.NodeFeatureRule
		err := k.client.Get(ctx, client.ObjectKey{Name: object}, &r, client.UnsafeDisableDeepCopy)
		if err == nil {
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := k.write(ctx, object, nil, ""); err != nil {
			return err
		}
	}
	return nil
}

// write sets one key, or removes it if there are no data.
func (k *keeper) write(ctx context.Context, object string, data []byte, version string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: keptName}}
	var err error
	switch {
	case k.there:
		var body []byte
		// An absent value is null, which a merge patch takes for a removal.
		if body, err = json.Marshal(map[string]any{"binaryData": map[string][]byte{object: data}}); err == nil {
			err = k.client.Patch(ctx, m, client.RawPatch(types.MergePatchType, body))
		}
	case data != nil:
		m.BinaryData = map[string][]byte{object: data}
		err = k.client.Create(ctx, m)
	}
	if err != nil {
		k.loaded = false // somebody else has written or removed it: look again
		return fmt.Errorf("keep what %s last came to: %w", object, err)
	}
	k.there = k.there || data != nil
	if data == nil {
		delete(k.have, object)
		delete(k.size, object)
		return nil
	}
	k.have[object], k.size[object] = version, len(data)
	return nil
}

func (k *kept) pack() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_ = json.NewEncoder(z).Encode(k) // into memory, of types that were decoded from JSON
	_ = z.Close()
	return b.Bytes()
}

// unpack returns nil if that is not what pack has made: somebody has edited it, and nobody can know what was in it.
func unpack(data []byte) *kept {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(z, maxKept+1))
	if err != nil || len(text) > maxKept {
		return nil
	}
	var k kept
	if json.Unmarshal(text, &k) != nil || k.Spec == nil {
		return nil
	}
	return &k
}
