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

// Kept is what an object last came to. It is kept as long as the object cannot be resolved: a manager that restarts meanwhile
// would otherwise take its labels away.
//
// A finalizer on templates that are in use would be the other way. It was not taken: it makes `kubectl delete -f directory`
// hang, depending on the order of the files, and the removal of Assay's definitions too once no manager runs that could take
// it off; and it does not help against the other ways to lose a base, an edit that a pin refuses or a cycle. So a template may
// go at any time: nothing is lost on nodes, Resolved=False and an Event on each object that is based on it say so, and the
// labels go with the object itself.
//
// Rules from Secrets are not kept: they are read again.
type Kept struct {
	UID     types.UID                        `json:"uid"` // an object of the same name may be another
	Spec    *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	Hash    string                           `json:"hash"`
	Origins []nfdv1alpha1.RuleOrigin         `json:"origins,omitempty"`
}

// SharedKeptName is the ConfigMap of Assay's namespace that holds them, one key for each object, of the instance without a name. Older
// releases had it for all instances, so the others read it until they have their own.
const SharedKeptName = "assay-kept-rules"

// KeptName returns the name of the ConfigMap of an instance. It is fixed, so that the manager need not be allowed to write others.
func KeptName(instance string) string {
	if instance == "" {
		return SharedKeptName
	}
	return SharedKeptName + "-" + instance
}

func (a *Assembler) keptName() string { return cmp.Or(a.opt.KeptName, SharedKeptName) }

// maxKept bounds what one of them is decompressed to, in bytes.
const maxKept = 4 * compose.MaxResult

// restore reads what was kept of an object; nil if there is nothing.
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

// Pack returns it as compressed JSON.
func (k *Kept) Pack() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_ = json.NewEncoder(z).Encode(k) // into memory, of types that were decoded from JSON
	_ = z.Close()
	return b.Bytes()
}

// Unpack is the inverse of Pack. It returns nil if that is not what Pack has made: somebody has edited it, and nobody can know what was in it.
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
