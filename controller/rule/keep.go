package rule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
)

// maxKeptTogether is the maximum size in bytes of everything that is kept; a ConfigMap holds 1 MiB, and the record of provenance has its share. Objects
// beyond it are not kept.
const maxKeptTogether = 512 << 10

// keeper writes what is kept into the ConfigMap. It is safe for concurrent use.
type keeper struct {
	client client.Client
	store  *provenance.Store

	mu   sync.Mutex
	read int               // number of the read of the store; 0: it has to be read
	have map[string]string // object -> UID and hash of what is kept of it
	size map[string]int
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

// load reads what an earlier manager has kept.
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
	return k.sweep(ctx)
}

// sweep forgets objects that went while no manager ran.
func (k *keeper) sweep(ctx context.Context) error {
	for _, object := range slices.Sorted(maps.Keys(k.have)) {
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
	if err := k.store.SetKept(ctx, k.read, object, data); err != nil {
		k.read = 0 // another client has written or removed it: read it again
		return fmt.Errorf("keep what %s last came to: %w", object, err)
	}
	if data == nil {
		delete(k.have, object)
		delete(k.size, object)
		return nil
	}
	k.have[object], k.size[object] = version, len(data)
	return nil
}
