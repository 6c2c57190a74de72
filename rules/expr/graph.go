package expr

import (
	"fmt"
	"slices"
	"strings"
)

// CycleError says that variables are defined by one another.
type CycleError struct {
	// Path names the variables; the last is the first again.
	Path []string
}

// Error returns the path.
func (e *CycleError) Error() string {
	return fmt.Sprintf("variables refer to one another: %s", strings.Join(e.Path, " → "))
}

// SortVars returns the names of variables in an order in which each comes after those it refers to, as sorted as that
// permits. Names that texts does not define are variables of others and play no part. The error is a *CycleError.
func SortVars(texts map[string]*Text) ([]string, error) {
	s := sorter{texts: texts, done: make(map[string]bool, len(texts))}
	for _, name := range sortedKeys(texts) {
		if err := s.visit(name); err != nil {
			return nil, err
		}
	}
	return s.order, nil
}

type sorter struct {
	texts map[string]*Text
	done  map[string]bool
	path  []string
	order []string
}

// visit recurses no deeper than there are variables in a rule, which the API bounds.
func (s *sorter) visit(name string) error {
	if s.done[name] || s.texts[name] == nil {
		return nil
	}
	if i := slices.Index(s.path, name); i >= 0 {
		return &CycleError{Path: append(slices.Clone(s.path[i:]), name)}
	}
	s.path = append(s.path, name)
	for _, next := range s.texts[name].Names() {
		if err := s.visit(next); err != nil {
			return err
		}
	}
	s.path = s.path[:len(s.path)-1]
	s.done[name] = true
	s.order = append(s.order, name)
	return nil
}
