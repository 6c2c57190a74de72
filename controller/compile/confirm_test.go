package compile

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// metadata is a fake API server with one object of each kind and name, which has this UID; empty: none.
type metadata struct {
	client.Reader
	uid  types.UID
	away error
}

func (m metadata) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if m.uid == "" && m.away == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	into.SetUID(m.uid)
	return m.away
}

// TestAnEarlierObjectInTheCacheIsNoEvidence: an object was deleted, and created again under its name, and the cache has not seen it.
func TestAnEarlierObjectInTheCacheIsNoEvidence(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		live metadata
		want error
	}{
		"ThatOne":     {metadata{uid: "later"}, ErrStale},
		"AnotherOne":  {metadata{uid: "still later"}, nil},
		"None":        {metadata{}, nil},
		"NobodyKnows": {metadata{away: away}, away},
	} {
		cached := objects{}
		cached.put("r", 0, 1)
		r := newRules(cached, tc.live, Options{}, nil)
		r.must(t, "r")
		if err := r.Confirm(t.Context(), "r", "later"); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
