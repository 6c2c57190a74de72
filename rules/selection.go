package rules

import (
	"regexp"

	"github.com/assay-project/assay/rules/facts"
)

// publishers selects NodeFeatures by their publisher.
type publishers struct {
	pattern *regexp.Regexp // matches namespace/name
}

// choose returns the merged facts of the selected publishers, in the same order as all facts.
func (p *publishers) choose(e *evaluation) facts.Source {
	var chosen []*facts.Facts
	for _, publisher := range e.in.Publishers {
		if p.pattern.MatchString(publisher.Name) {
			chosen = append(chosen, publisher.Facts)
		}
	}
	src := facts.NewOverlay(facts.Merge(nil, chosen...))
	e.showMatched(src)
	return src
}
