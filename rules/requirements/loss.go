package requirements

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// MinLossGrace is the minimum grace in seconds: the controller checks the pods of a node about once per second.
const MinLossGrace = 1

// CheckLoss returns the errors of a response to the loss of features.
func CheckLoss(in *assayv1alpha1.LossResponse, path *field.Path) (errs field.ErrorList) {
	switch in.OnLoss {
	case "", assayv1alpha1.LossEvent, assayv1alpha1.LossTaint:
	default:
		errs = append(errs, field.NotSupported(path.Child("onLoss"), in.OnLoss, []assayv1alpha1.LossAction{assayv1alpha1.LossEvent, assayv1alpha1.LossTaint}))
	}
	if in.Grace != nil && in.Grace.Seconds() < MinLossGrace {
		errs = append(errs, field.Invalid(path.Child("grace"), in.Grace.Duration.String(), "must be 1s or more"))
	}
	return errs
}
