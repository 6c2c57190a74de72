package webhook

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules"
)

// fits rejects rules that exceed the memory budget together with all others: the controller would ignore them. Reducing the size is
// always allowed.
func (o *Options) fits(v *verdict, name string) {
	if o.Room == nil || !v.Complete || len(v.Errors) > 0 {
		return
	}
	room, now := o.Room(name)
	if n := v.Set.Size(); n > max(room, now) {
		v.Errors = append(v.Errors, field.Forbidden(field.NewPath("spec", "rules"), fmt.Sprintf(
			"take %d bytes of memory when they are compiled, and the other rules of the cluster leave %d of %d bytes; "+
				"delete some of them, or use fewer values and simpler patterns", n, max(room, 0), rules.MaxClusterSize)))
	}
}
