// Package builtin reports the status of the built-in rules in a ConfigMap.
package builtin

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/assay-project/assay/internal/assembly/directory"
)

// Add registers a reporter with mgr that runs on the leader.
func Add(mgr ctrl.Manager, built *directory.Directory, namespace string) error {
	if built == nil {
		return nil
	}
	return mgr.Add(&reporter{rules: built, namespace: namespace, client: mgr.GetClient(), live: mgr.GetAPIReader()})
}
