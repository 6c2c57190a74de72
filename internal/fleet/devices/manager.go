package devices

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/rules/gather"
)

// Add returns Devices that a manager runs. They count for as long as a worker's features do.
func Add(mgr ctrl.Manager, policy gather.Policy, grace time.Duration) (*Devices, error) {
	c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, err
	}
	d := New(Options{Client: c, Counts: policy.CountsDriver, Grace: grace})
	return d, mgr.Add(d)
}
