package poison

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestKeptMemoryIsNoticed keeps what must not be kept.
func TestKeptMemoryIsNoticed(t *testing.T) {
	var kept string
	failed := errors.New("failed")
	if err := Text("model-1029", func(text string) error {
		if text != "model-1029" {
			t.Errorf("in use, the text is %q", text)
		}
		kept = text[6:]
		return failed
	}); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want that of the function", err)
	}
	buffer := append(make([]byte, 0, 16), "node-1"...)
	part := buffer[2:4]
	beyond := buffer[:16]
	Bytes(buffer[:0])
	list := []string{"a", "b"}
	Slice(list[:1], String)

	wantKept, wantPart, wantList := "1029", "de", []string{"a", "b"}
	if Enabled {
		wantKept, wantPart, wantList = strings.Repeat("\xAA", 4), "\xAA\xAA", []string{String, String}
		if string(beyond) != strings.Repeat("\xAA", 16) {
			t.Errorf("the buffer up to its capacity is %q", beyond)
		}
	}
	if kept != wantKept || string(part) != wantPart || !slices.Equal(list, wantList) {
		t.Errorf("kept %q, %q, %q; want %q, %q, %q", kept, part, list, wantKept, wantPart, wantList)
	}
}

func TestEmptyMemory(t *testing.T) {
	if err := Text("", func(text string) error {
		if text != "" {
			t.Errorf("the text is %q, want none", text)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	Bytes(nil)
	Slice[int](nil, 1)
}
