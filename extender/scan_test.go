package extender

import "testing"

// TestEveryPrefixOfAQuestionIsMalformed truncates a request at each byte: the scanner never reads beyond the end.
func TestEveryPrefixOfAQuestionIsMalformed(t *testing.T) {
	const question = `{"Pod":{"metadata":{"name":"p\"\\"}},"NodeNames":["a","b"],"Nodes":null}`
	read := func(data string) error {
		s := scanner{data: []byte(data)}
		return s.object(func(_, _ span) error { return nil })
	}
	if err := read(question); err != nil {
		t.Fatal(err)
	}
	for n := range len(question) {
		if read(question[:n]) == nil {
			t.Errorf("%s is taken for an object", question[:n])
		}
	}
}
