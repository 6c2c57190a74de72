package assembly

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
)

// Kept holds the last active rules of an object. They are stored as long as the object cannot be resolved; otherwise a restart of
// the manager would remove its labels.
//
// The alternative, a finalizer on templates in use, has disadvantages: `kubectl delete -f directory` would hang depending on the
// order of the files, and so would the removal of Assay's CRDs if no manager is running to remove the finalizer. It also would not
// help if a base is lost in other ways, by an edit that does not match a digest or by a cycle. Templates can therefore be deleted
// at any time: nodes keep their labels, each object that is based on the template reports it with Resolved=False and an Event, and
// the labels are removed with the object itself.
//
// Rules from Secrets are not stored; they are read again.
type Kept struct {
	UID     types.UID                        `json:"uid"` // another object may have the same name
	Spec    *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	Hash    string                           `json:"hash"`
	Origins []nfdv1alpha1.RuleOrigin         `json:"origins,omitempty"`
}

// SharedKeptName is the name of the ConfigMap in Assay's namespace with the stored rules of the instance without a name, one key
// per object. Older releases used it for all instances, so the other instances read it until they have their own.
const SharedKeptName = "assay-kept-rules"

// KeptName returns the name of the ConfigMap of an instance. It is fixed, so that the manager's permissions can be restricted to
// it.
func KeptName(instance string) string {
	if instance == "" {
		return SharedKeptName
	}
	return SharedKeptName + "-" + instance
}

func (a *Assembler) keptName() string { return cmp.Or(a.opt.KeptName, SharedKeptName) }

// maxKept is the maximum decompressed size in bytes.
const maxKept = 4 * compose.MaxResult

// restore returns the stored rules of an object, or nil if there are none.
func (a *Assembler) restore(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*Kept, error) {
	for _, name := range slices.Compact([]string{a.keptName(), SharedKeptName}) {
		m, err := a.source.ConfigMap(ctx, name)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k := Unpack(m.BinaryData[obj.Name]); k != nil && k.UID == obj.UID {
			return k, nil
		}
	}
	return nil, nil
}

// Pack returns the compressed JSON.
func (k *Kept) Pack() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_ = json.NewEncoder(z).Encode(k) // cannot fail: these types were decoded from JSON
	_ = z.Close()
	return b.Bytes()
}

// Unpack is the inverse of Pack. It returns nil if data is not a result of Pack, for example because a user has edited it.
func Unpack(data []byte) *Kept {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(z, maxKept+1))
	if err != nil || len(text) > maxKept {
		return nil
	}
	var k Kept
	if json.Unmarshal(text, &k) != nil || k.Spec == nil {
		return nil
	}
	return &k
}
