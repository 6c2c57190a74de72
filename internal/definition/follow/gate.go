package follow

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// retryGate is the delay before an object is reconciled whose kind could not be written.
const retryGate = 5 * time.Second

// Gate returns a reconciler of a kind that writes its objects, which waits while the API server would drop fields of them.
func Gate(d *Definitions, name string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if !d.Writable(name) {
			return reconcile.Result{RequeueAfter: retryGate}, nil
		}
		return r.Reconcile(ctx, req)
	})
}
