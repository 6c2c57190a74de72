package extender

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Limits of a request. They are three times what any cluster that Kubernetes supports (5,000 nodes) needs.
const (
	// maxNames is the maximum number of nodes in a request.
	maxNames = 50_000
	// maxName is the maximum length of the name of a Node in the API server. With JSON escapes it is longer.
	maxName = 253 * 6
	// maxDepth is the maximum nesting depth of a Pod; the deepest path in the API has about twenty levels.
	maxDepth = 64
)

// errMalformed is returned for most invalid requests. It has no position, since no person writes these requests.
var errMalformed = errors.New("the request is not the JSON that kube-scheduler sends to an extender")

// span is the part of a body that holds one JSON value, including its quotes or brackets. Nil: absent, or null.
type span []byte

// args holds the relevant parts of a request, as JSON. The field names are those of k8s.io/kube-scheduler/extender/v1, whose types
// have no tags. A Pod has a hundred times more JSON than is needed, and names of nodes are only compared: none of it is ever
// decoded. Answers to filter and prioritize are not encoded from these types either, since each pod waits for them; the others are.
type args struct {
	pod pod
	// nodes is set by schedulers that are not configured to send names.
	nodes, nodeNames    span
	victims, metaVictim span // NodeNameToVictims, NodeNameToMetaVictims
}

// pod is the data of the pod in a request.
type pod struct {
	name, namespace, uid, labels, annotations span
}

// parse finds the parts of a body. It detects structural errors only in the parts that it reads.
func (a *args) parse(body []byte) error {
	*a = args{}
	s := scanner{data: body}
	err := s.object(func(key, value span) error {
		switch {
		case is(key, "Pod"):
			return a.pod.parse(value)
		case is(key, "Nodes"):
			a.nodes = value
		case is(key, "NodeNames"):
			a.nodeNames = value
		case is(key, "NodeNameToVictims"):
			a.victims = value
		case is(key, "NodeNameToMetaVictims"):
			a.metaVictim = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.blank(); s.at != len(s.data) {
		return errMalformed
	}
	return nil
}

func (p *pod) parse(data span) error {
	if data == nil {
		return nil
	}
	s := scanner{data: data}
	return s.object(func(key, value span) error {
		if !is(key, "metadata") || value == nil {
			return nil
		}
		meta := scanner{data: value}
		return meta.object(func(key, value span) error {
			switch {
			case is(key, "name"):
				p.name = value
			case is(key, "namespace"):
				p.namespace = value
			case is(key, "uid"):
				p.uid = value
			case is(key, "labels"):
				p.labels = value
			case is(key, "annotations"):
				p.annotations = value
			}
			return nil
		})
	})
}

// is compares a quoted key as encoding/json does for fields: case-insensitively.
func is(key span, name string) bool {
	return bytes.EqualFold(key[1:len(key)-1], []byte(name))
}

// text returns the string in a span; empty if the span is nil.
func (s span) text() string {
	var out string
	if s == nil || json.Unmarshal(s, &out) != nil {
		return ""
	}
	return out
}

// bare returns the content of a quoted span without escapes. It allocates only if there are escapes.
func (s span) bare() []byte {
	inner := s[1 : len(s)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return []byte(s.text())
}

// eachName calls f with each string of a list, including its quotes.
func eachName(list span, f func(name span)) error {
	s := scanner{data: list}
	if !s.next('[') {
		return errMalformed
	}
	if s.next(']') {
		return nil
	}
	for n := 1; ; n++ {
		s.blank()
		name, err := s.quoted()
		if err == nil {
			err = checkName(n, name)
		}
		if err != nil {
			return err
		}
		f(name)
		if s.next(']') {
			return nil
		}
		if !s.next(',') {
			return errMalformed
		}
	}
}

// eachField calls f with each field of an object.
func eachField(object span, f func(key, value span) error) error {
	s := scanner{data: object}
	n := 0
	return s.object(func(key, value span) error {
		n++
		if err := checkName(n, key); err != nil {
			return err
		}
		return f(key, value)
	})
}

// checkName checks the n-th name of a request against the limits.
func checkName(n int, name span) error {
	switch {
	case n > maxNames:
		return fmt.Errorf("the request names more than %d nodes", maxNames)
	case len(name) > maxName:
		return fmt.Errorf("the request names a node with a name of %d characters, which is too long", len(name))
	}
	return nil
}

// scanner scans JSON. It validates only what is necessary to find the end of a value.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) blank() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next skips whitespace, and one byte if that is the next one.
func (s *scanner) next(c byte) bool {
	s.blank()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// object calls f with each field. A null value is passed as nil.
func (s *scanner) object(f func(key, value span) error) error {
	if !s.next('{') {
		return errMalformed
	}
	if s.next('}') {
		return nil
	}
	for {
		s.blank()
		key, err := s.quoted()
		if err != nil {
			return err
		}
		if !s.next(':') {
			return errMalformed
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := f(key, value); err != nil {
			return err
		}
		if s.next('}') {
			return nil
		}
		if !s.next(',') {
			return errMalformed
		}
	}
}

// quoted returns a string including its quotes.
func (s *scanner) quoted() (span, error) {
	start := s.at
	if start >= len(s.data) || s.data[start] != '"' {
		return nil, errMalformed
	}
	for i := start + 1; ; {
		n := bytes.IndexByte(s.data[i:], '"')
		if n < 0 {
			return nil, errMalformed
		}
		i += n
		escapes := 0
		for s.data[i-1-escapes] == '\\' {
			escapes++
		}
		if i++; escapes%2 == 0 {
			s.at = i
			return s.data[start:i], nil
		}
	}
}

// value returns the next value, nil if it is null.
func (s *scanner) value() (span, error) {
	s.blank()
	start := s.at
	if start >= len(s.data) {
		return nil, errMalformed
	}
	switch s.data[start] {
	case '"':
		return s.quoted()
	case '{', '[':
		return s.nested()
	}
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return literal(s.data[start:s.at])
		case '"', ':', '{', '[':
			return nil, errMalformed
		}
		s.at++
	}
	return literal(s.data[start:])
}

func literal(text span) (span, error) {
	switch {
	case string(text) == "null":
		return nil, nil
	case !json.Valid(text):
		return nil, errMalformed
	}
	return text, nil
}

// nested returns an object or list.
func (s *scanner) nested() (span, error) {
	var open [maxDepth]byte
	depth, start := 0, s.at
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case '"':
			if _, err := s.quoted(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			if depth == maxDepth {
				return nil, errMalformed
			}
			open[depth] = c + 2 // the closing bracket, in ASCII
			depth++
		case '}', ']':
			depth--
			if open[depth] != c {
				return nil, errMalformed
			}
			if depth == 0 {
				s.at++
				return s.data[start:s.at], nil
			}
		}
		s.at++
	}
	return nil, errMalformed
}
