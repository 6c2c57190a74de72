package rule

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
)

// What an object last came to is kept in a ConfigMap of the manager's namespace as long as it cannot be resolved: a manager
// that restarts meanwhile would otherwise take its labels away.
//
// A finalizer on templates that are in use would be the other way. It was not taken: it makes `kubectl delete -f directory`
// hang, depending on the order of the files, and the removal of Assay's definitions too once no manager runs that could take
// it off; and it does not help against the other ways to lose a base, an edit that a pin refuses or a cycle. So a template may
// go at any time: nothing is lost on nodes, Resolved=False and an Event on each object that is based on it say so, and the
// labels go with the object itself.
//
// Rules from Secrets are not kept: they are read again.
type kept struct {
	Spec    *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	Hash    string                           `json:"hash"`
	Origins []nfdv1alpha1.RuleOrigin         `json:"origins,omitempty"`
}

const (
	keptPrefix = "assay-kept-"
	// keptKey holds the compressed JSON.
	keptKey = "rules.json.gz"
	// keptUID says which object it is of: one of the same name may be another.
	keptUID  = "assay.dev/object-uid"
	keptHash = "assay.dev/effective-hash"
	// maxKept bounds what is read back, in bytes.
	maxKept = 4 * compose.MaxResult
)

// keptName is the name of the ConfigMap of an object. Together with the prefix a long name would not fit.
func keptName(object string) string {
	if len(keptPrefix)+len(object) <= 253 {
		return keptPrefix + object
	}
	sum := sha256.Sum256([]byte(object))
	return keptPrefix + hex.EncodeToString(sum[:])
}

// restore reads what was kept of an object; nil if there is nothing.
func (c *compiler) restore(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*kept, error) {
	var m corev1.ConfigMap
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.opt.Namespace, Name: keptName(obj.Name)}, &m)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if m.Annotations[keptUID] != string(obj.UID) {
		return nil, nil
	}
	return unpack(m.BinaryData[keptKey]), nil
}

// keep writes what has to be kept of an object, or removes what no longer has to be. The metadata of ConfigMaps is cached, so
// it costs nothing where there is nothing to do.
func (s *reporter) keep(ctx context.Context, name string, obj *nfdv1alpha1.NodeFeatureRule, known *report) error {
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	key := client.ObjectKey{Namespace: s.compiler.opt.Namespace, Name: keptName(name)}
	err := s.client.Get(ctx, key, have)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	there := err == nil
	if obj == nil || known.unresolved == nil || known.good == nil {
		if !there {
			return nil
		}
		return client.IgnoreNotFound(s.client.Delete(ctx, have))
	}
	if there && have.Annotations[keptUID] == string(obj.UID) && have.Annotations[keptHash] == known.good.Hash {
		return nil
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Annotations: map[string]string{keptUID: string(obj.UID), keptHash: known.good.Hash},
			// It goes with the object, also if no manager runs then.
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(obj, nfdv1alpha1.GroupVersion.WithKind("NodeFeatureRule"))},
		},
		BinaryData: map[string][]byte{keptKey: known.good.pack()},
	}
	if there {
		return s.client.Update(ctx, m)
	}
	return s.client.Create(ctx, m)
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
