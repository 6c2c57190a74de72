package expr

import (
	"fmt"
	"slices"
	"strings"
)

// CycleError reports variables that refer to each other in a cycle.
type CycleError struct {
	// Path names the variables; the last one equals the first one.
	Path []string
}

// Error returns the path.
func (e *CycleError) Error() string {
	return fmt.Sprintf("variables refer to one another: %s", strings.Join(e.Path, " → "))
}

// Order sorts the names of variables so that each follows those it refers to, and otherwise keeps the given order. It ignores
// references to other names. The error is a *CycleError.
func Order(names []string, references func(name string) []string) ([]string, error) {
	s := sorter{references: references, state: make(map[string]state, len(names)), order: make([]string, 0, len(names))}
	for _, name := range names {
		s.state[name] = waiting
	}
	for _, name := range names {
		if err := s.visit(name); err != nil {
			return nil, err
		}
	}
	return s.order, nil
}

type state uint8

const (
	foreign state = iota // not one of the names
	waiting
	entered
	done
)

type sorter struct {
	references func(name string) []string
	state      map[string]state
	path       []string
	order      []string
}

// visit recurses at most once per name, and the API limits the number of names.
func (s *sorter) visit(name string) error {
	switch s.state[name] {
	case entered:
		path := slices.Clone(s.path[slices.Index(s.path, name):])
		return &CycleError{Path: append(path, name)}
	case waiting:
	default:
		return nil
	}
	s.state[name] = entered
	s.path = append(s.path, name)
	for _, next := range s.references(name) {
		if err := s.visit(next); err != nil {
			return err
		}
	}
	s.path = s.path[:len(s.path)-1]
	s.state[name] = done
	s.order = append(s.order, name)
	return nil
}
