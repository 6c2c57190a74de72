package rule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
)

// maxKeptTogether is the maximum size of all stored results in bytes; a ConfigMap holds 1 MiB, part of which is for the record of
// provenance. Objects over the limit are not stored.
const maxKeptTogether = 512 << 10

// keeper stores results in the ConfigMap. It is safe for concurrent use.
type keeper struct {
	live  client.Reader // reads from the API server
	store *provenance.Store

	mu   sync.Mutex
	read int               // number of the last read of the store; 0: must be read
	have map[string]string // by object: UID and hash of the stored result
	size map[string]int
}

// keep stores the result of an object, or deletes it if there is no result. It sends no request to the API server if nothing
// changes.
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
		logf.FromContext(ctx).Info("Too many unresolved objects to store their last results; a restart would remove the outputs of this object", "object", object)
		return nil
	}
	return k.write(ctx, object, data, version)
}

// load reads the results that a previous manager stored.
func (k *keeper) load(ctx context.Context) error {
	if k.read != 0 {
		return nil
	}
	m, read, err := k.store.Read(ctx)
	if err != nil {
		return err
	}
	k.have, k.size = map[string]string{}, map[string]int{}
	for object, data := range m.BinaryData {
		version := ""
		if old := assembly.Unpack(data); old != nil {
			version = string(old.UID) + " " + old.Hash
		}
		k.have[object], k.size[object] = version, len(data)
	}
	k.read = read
	if err := k.sweep(ctx); err != nil {
		k.read = 0 // again with the next call
		return err
	}
	return nil
}

// sweep deletes the results of objects that were deleted while no manager was running. That an object is absent from a cache is no
// evidence: without its result, the object would lose its outputs at the next start.
func (k *keeper) sweep(ctx context.Context) error {
	for _, object := range slices.Sorted(maps.Keys(k.have)) {
		var r metav1.PartialObjectMetadata
		r.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeatureRule"))
		err := k.live.Get(ctx, client.ObjectKey{Name: object}, &r)
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

// write sets one key, or removes it if data is nil.
func (k *keeper) write(ctx context.Context, object string, data []byte, version string) error {
	if err := k.store.SetKept(ctx, k.read, object, data); err != nil {
		k.read = 0 // another client has written or removed it: read it again
		return fmt.Errorf("store the last result of %s: %w", object, err)
	}
	if data == nil {
		delete(k.have, object)
		delete(k.size, object)
		return nil
	}
	k.have[object], k.size[object] = version, len(data)
	return nil
}
