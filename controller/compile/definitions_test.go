package compile

import (
	"context"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// filling is a cache that notes when it starts to list objects.
type filling struct {
	cache.Cache
	order *[]string
}

func (c filling) Start(context.Context) error {
	*c.order = append(*c.order, "objects listed")
	return nil
}

// TestDefinitionsAreReadBeforeObjectsAreListed: a process listed rules without their conditions and then read that their definition was whole.
func TestDefinitionsAreReadBeforeObjectsAreListed(t *testing.T) {
	var order []string
	c := &orderedCache{Cache: filling{order: &order}, before: func(context.Context) { order = append(order, "definitions read") }}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"definitions read", "objects listed"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
