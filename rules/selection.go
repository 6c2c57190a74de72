package rules

import (
	"regexp"

	"github.com/assay-project/assay/rules/facts"
)

// publishers chooses NodeFeatures by who published them.
type publishers struct {
	pattern *regexp.Regexp // on namespace/name
}

// choose returns the facts of the chosen publishers, merged in the order in which all are.
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
