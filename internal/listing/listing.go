// Package listing lists objects of the cluster in pages.
package listing

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the maximum number of objects per page: 5,000 Nodes in one response would take 50 MB.
const pageSize = 250

// Pages lists objects in pages and calls do with each page. It allocates a new list for each page, because decoding into an old one
// may keep parts of it.
func Pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Reader, do func(L), opts ...client.ListOption) error {
	for next := ""; ; {
		list := L(new(T))
		if err := c.List(ctx, list, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		do(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
