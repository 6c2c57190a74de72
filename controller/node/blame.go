package node

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/assay-project/assay/rules/plan"
)

// errStale is returned when the cache is known to be behind the API server.
var errStale = errors.New("the cache is behind; trying again")

// blame says which steps of a plan the API server refuses, or nil if that is not what the error is about. The server names
// the field of most; where it names none, extended resources are the likeliest, since they are all that it checks beyond
// what was checked before writing.
func blame(err error, p *plan.Plan) func(plan.Step) bool {
	if err == nil || !apierrors.IsInvalid(err) {
		return nil
	}
	var status apierrors.APIStatus
	named := map[string]bool{}
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			for _, s := range p.Steps {
				if strings.Contains(cause.Field, s.Key) || strings.Contains(cause.Message, `"`+s.Key+`"`) {
					named[s.Key] = true
				}
			}
		}
	}
	return func(s plan.Step) bool {
		if len(named) == 0 {
			return s.Kind == plan.Resource
		}
		return named[s.Key]
	}
}
