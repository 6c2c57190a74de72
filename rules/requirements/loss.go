package requirements

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
)

// MinLossGrace is the minimum grace in seconds: the controller checks the pods of a node about once per second.
const MinLossGrace = 1

// NotSupported returns the error about a value that is not one of a few, with the one that it resembles.
func NotSupported[T ~string](path *field.Path, value T, supported []T) *field.Error {
	err := field.NotSupported(path, value, supported)
	names := make([]string, len(supported))
	for i, s := range supported {
		names[i] = string(s)
	}
	if near := suggest.NearestFold(string(value), names, maxTypo+1); near != "" {
		err.Detail = "did you mean " + near + "? " + err.Detail
	}
	return err
}

// maxTypo is the maximum number of letters by which a suggested value differs, in any case.
const maxTypo = 2

// CheckLoss returns the errors of a response to the loss of features.
func CheckLoss(in *assayv1alpha1.LossResponse, path *field.Path) (errs field.ErrorList) {
	switch in.OnLoss {
	case "", assayv1alpha1.LossEvent, assayv1alpha1.LossTaint:
	default:
		errs = append(errs, NotSupported(path.Child("onLoss"), in.OnLoss, []assayv1alpha1.LossAction{assayv1alpha1.LossEvent, assayv1alpha1.LossTaint}))
	}
	if in.Grace != nil && in.Grace.Seconds() < MinLossGrace {
		errs = append(errs, field.Invalid(path.Child("grace"), in.Grace.Duration.String(), "must be 1s or more"))
	}
	return errs
}
