package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
)

// Names returns the keys of the file; those in sections contain a dot.
func Names() []string { return keysOf(Default()).Names() }

// Review returns the errors and warnings of a configuration file. The controller starts with it unless it has errors. Scheduling says that
// the flags of the controller set the feature gate FeatureScheduling.
func Review(data []byte, scheduling bool) []yamltree.Problem {
	s := Default()
	if scheduling {
		s.FeatureGates[GateScheduling] = true
	}
	out := config.Check(data, keysOf(s))
	for _, line := range lines(errors.Join(s.Check(), s.CheckLosses())) {
		out = append(out, at(data, yamltree.Problem{Severity: yamltree.Error, Code: "invalid", Message: line}))
	}
	for _, line := range s.advice() {
		out = append(out, at(data, yamltree.Problem{Severity: yamltree.Warning, Code: "suspicious", Message: line}))
	}
	return out
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// at sets the position of a problem to that of the first key of the file that its message names.
func at(data []byte, p yamltree.Problem) yamltree.Problem {
	p.Line = 1
	text := yamltree.Parse(data, yamltree.Options{})
	if len(text.Documents) == 0 {
		return p
	}
	words := strings.FieldsFunc(p.Message, func(r rune) bool { return strings.ContainsRune(` :;,"`, r) })
	for _, name := range Names() {
		if !slices.Contains(words, name) {
			continue
		}
		if way, found := yamltree.Follow(text.Documents[0].Content[0], name); found {
			p.Position = yamltree.At(way[len(way)-1].Value)
			return p
		}
	}
	return p
}

// CheckLosses returns what the controller needs to taint nodes that lost features. Other programs may not have these settings.
func (s *Settings) CheckLosses() error {
	switch {
	case s.LossTaint == "":
	case !s.FeatureGates[GateScheduling]:
		return fmt.Errorf("lossTaint %q: the controller does not watch pods; set --feature-gates=%s=true", s.LossTaint, GateScheduling)
	case s.NoExecuteBudget.Every <= 0:
		return fmt.Errorf("lossTaint %q: a feature that all nodes lose would taint all of them at once; set noExecuteBudget.every, for example to 5m", s.LossTaint)
	}
	return nil
}
