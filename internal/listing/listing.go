// Package listing lists objects of the cluster page by page.
package listing

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects that are listed at once: 5,000 Nodes in one answer would be 50 MB.
const pageSize = 250

// Pages lists objects page by page and passes each page to do. A page is a new list: what is decoded into an old one may keep
// parts of it.
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
