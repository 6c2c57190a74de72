package rule

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
)

// maxKeptTogether is how many bytes what is kept may have together; a ConfigMap holds 1 MiB. Objects beyond it are not kept.
const maxKeptTogether = 900 << 10

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
func (k *keeper) keep(ctx context.Context, object string, what *assembly.Kept) error {
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
	data := what.Pack()
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
	key := client.ObjectKey{Namespace: k.namespace, Name: assembly.KeptName}
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
		if old := assembly.Unpack(data); old != nil {
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
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: assembly.KeptName}}
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
