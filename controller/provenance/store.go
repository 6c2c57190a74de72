package provenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/internal/turn"
)

// ErrChanged is returned by Write if the ConfigMap is not the one that was read.
var ErrChanged = errors.New("the ConfigMap has been changed by another client; reading it again")

// Store is the ConfigMap in which the controller keeps what has to survive it. It is safe for concurrent use.
type Store struct {
	client client.Client
	live   client.Reader
	key    client.ObjectKey

	turn  turn.Lock         // of the fields below
	last  *corev1.ConfigMap // as read or written last; nil: it has to be read
	reads int
}

// NewStore returns the store of a ConfigMap, which is created with the first write.
func NewStore(c client.Client, live client.Reader, namespace, name string) *Store {
	return &Store{client: c, live: live, key: client.ObjectKey{Namespace: namespace, Name: name}, turn: turn.New()}
}

// Read returns the ConfigMap, without a UID if there is none, and a number that Write takes. It must not be changed.
func (s *Store) Read(ctx context.Context) (*corev1.ConfigMap, int, error) {
	release, err := s.turn.Take(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	if s.last == nil {
		m := &corev1.ConfigMap{}
		if err := s.live.Get(ctx, s.key, m); client.IgnoreNotFound(err) != nil {
			return nil, 0, fmt.Errorf("read ConfigMap %s: %w", s.key, err)
		}
		s.last, s.reads = m, s.reads+1
	}
	return s.last, s.reads, nil
}

// SetRecord writes the record of provenance. It returns ErrChanged if the ConfigMap is not the one that was read with this number.
func (s *Store) SetRecord(ctx context.Context, read int, text string) error {
	return s.write(ctx, read, map[string]any{"data": map[string]any{record.DataKey: text}})
}

// SetKept writes what is kept of an object; nil removes it. See SetRecord.
func (s *Store) SetKept(ctx context.Context, read int, object string, data []byte) error {
	var value any // an absent value is null, which a merge patch takes for a removal
	if data != nil {
		value = data
	}
	return s.write(ctx, read, map[string]any{"binaryData": map[string]any{object: value}})
}

func (s *Store) write(ctx context.Context, read int, change map[string]any) error {
	release, err := s.turn.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if s.last == nil || s.reads != read {
		return ErrChanged
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}}
	exists := s.last.UID != ""
	if exists {
		change["metadata"] = map[string]any{"resourceVersion": s.last.ResourceVersion}
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode ConfigMap %s: %w", s.key, err)
	}
	if exists {
		err = s.client.Patch(ctx, m, client.RawPatch(types.MergePatchType, body))
	} else if err = json.Unmarshal(body, m); err == nil {
		err = s.client.Create(ctx, m)
	}
	if err != nil {
		s.last = nil // it is not known what is there now
		return fmt.Errorf("write ConfigMap %s: %w", s.key, err)
	}
	s.last = m
	return nil
}
