package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Check returns the errors of values, all at once.
func (s *Settings) Check() error {
	var errs []error
	for i := range list {
		errs = append(errs, list[i].check(s))
	}
	if found := validation.IsDNS1123Subdomain(nfdv1alpha1.LeaseName(s.Instance)); len(found) > 0 {
		errs = append(errs, fmt.Errorf("invalid --instance %q: it is part of names of annotations and of a Lease; use letters, digits, - and ., for example gpu-nodes", s.Instance))
	}
	_, failErr := s.FailTaintOf()
	_, lossErr := s.LossTaintOf()
	errs = append(errs, failErr, lossErr)
	if s.StartupTaint != "" {
		errs = append(errs, s.checkStartupTaint()...)
	}
	for _, name := range s.NodeShapeLabels {
		if found := validation.IsQualifiedName(name); len(found) > 0 {
			errs = append(errs, fmt.Errorf("nodeShapeLabels: invalid label name %q: %s", name, strings.Join(found, "; ")))
		}
	}
	if l := s.LeaderElection; l.LeaseDuration <= l.RenewDeadline || l.RenewDeadline <= l.RetryPeriod || l.RetryPeriod <= 0 {
		errs = append(errs, errors.New(
			"leaderElection: leaseDuration must be greater than renewDeadline, and renewDeadline greater than retryPeriod"))
	}
	return errors.Join(errs...)
}

// check compares a value with the range and the values of its declaration.
func (s *Setting) check(all *Settings) error {
	number := 0.0
	switch v := s.variable(all).(type) {
	case *int:
		number = float64(*v)
	case *float64:
		number = *v
	case *string:
		if s.enum != nil && !slices.Contains(s.enum, *v) {
			return fmt.Errorf("invalid %s %q: use %s or %s", s.name(), *v, strings.Join(s.enum[:len(s.enum)-1], ", "), s.enum[len(s.enum)-1])
		}
	}
	switch {
	case s.max != nil && (number < *s.min || number > *s.max):
		return fmt.Errorf("invalid %s %g: use a number from %g to %g", s.name(), number, *s.min, *s.max)
	case s.min != nil && number < *s.min:
		return fmt.Errorf("invalid %s %g: use a number of at least %g", s.name(), number, *s.min)
	}
	return nil
}

func (s *Settings) checkStartupTaint() (errs []error) {
	if verdict := keys.StartupTaint(s.StartupTaint); !verdict.OK() {
		errs = append(errs, fmt.Errorf("startupTaint: %s", verdict.Message()))
	}
	if !s.Primary() {
		errs = append(errs, fmt.Errorf("startupTaint %q: the taint is removed from nodes with the condition FeaturesReady, which only the controller without an instance name writes; "+
			"set startupTaint on that controller, or remove --instance=%s", s.StartupTaint, s.Instance))
	}
	if !s.FeaturesReady {
		errs = append(errs, errors.New("startupTaint is removed from nodes with the condition FeaturesReady; do not set featuresReady to false"))
	}
	if s.FailOpenAfter <= 0 {
		errs = append(errs, fmt.Errorf("invalid failOpenAfter %s: use a positive duration, for example 10m", s.FailOpenAfter))
	}
	return errs
}

// FailTaintOf returns the taint for nodes that the action fail keeps unchanged, or nil if there is none.
func (s *Settings) FailTaintOf() (*corev1.Taint, error) {
	return parseTaint("failTaint", s.FailTaint, "KEY=VALUE:EFFECT", func(corev1.Taint) bool { return true })
}

// LossTaintOf returns the taint for nodes that lost features, without its value, or nil if there is none.
func (s *Settings) LossTaintOf() (*corev1.Taint, error) {
	taint, err := parseTaint("lossTaint", s.LossTaint, "KEY:NoExecute or KEY:NoSchedule, without a value", func(t corev1.Taint) bool {
		return t.Value == "" && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == corev1.TaintEffectNoSchedule)
	})
	if taint == nil {
		return nil, err
	}
	if fail, _ := s.FailTaintOf(); fail != nil && taint.MatchTaint(fail) || taint.Key == s.StartupTaint {
		return nil, fmt.Errorf("invalid lossTaint %q: it is also failTaint or startupTaint; use another key", s.LossTaint)
	}
	return taint, nil
}

// parseTaint returns the taint in a setting, or nil if it is empty.
func parseTaint(setting, value, form string, valid func(corev1.Taint) bool) (*corev1.Taint, error) {
	if value == "" {
		return nil, nil
	}
	list := plan.ParseTaints(value)
	if len(list) != 1 || !valid(list[0]) {
		return nil, fmt.Errorf("invalid %s %q: use %s", setting, value, form)
	}
	if verdict := (&keys.Policy{}).Taint(list[0]); !verdict.OK() {
		return nil, fmt.Errorf("%s: %s", setting, verdict.Message())
	}
	return &list[0], nil
}
