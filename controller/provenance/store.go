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

	"github.com/assay-project/assay/internal/turn"
)

// ErrChanged is returned by a write if the ConfigMap has changed since it was read.
var ErrChanged = errors.New("another client has changed the ConfigMap; reading it again")

// Store is the ConfigMap with the persistent state of the controller. It is safe for concurrent use.
type Store struct {
	client client.Client
	live   client.Reader
	key    client.ObjectKey

	turn  turn.Lock         // guards the fields below
	last  *corev1.ConfigMap // last version read or written; nil: must be read
	reads int
}

// NewStore returns the store for a ConfigMap, which the first write creates.
func NewStore(c client.Client, live client.Reader, namespace, name string) *Store {
	return &Store{client: c, live: live, key: client.ObjectKey{Namespace: namespace, Name: name}, turn: turn.New()}
}

// Read returns the ConfigMap, without a UID if it does not exist, and a number to pass to a write. The caller must not modify it.
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

// SetData writes the value of a key. It returns ErrChanged if the ConfigMap has changed since the read with this number.
func (s *Store) SetData(ctx context.Context, read int, key, text string) error {
	return s.write(ctx, read, map[string]any{"data": map[string]any{key: text}})
}

// SetKept stores the last good result of an object; nil deletes it. See SetData.
func (s *Store) SetKept(ctx context.Context, read int, object string, data []byte) error {
	var value any // null in a merge patch removes the key
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
		s.last = nil // the content is unknown now
		return fmt.Errorf("write ConfigMap %s: %w", s.key, err)
	}
	s.last = m
	return nil
}
