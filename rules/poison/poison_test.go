package poison

import (
	"errors"
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

	wantKept, wantPart := "1029", "de"
	if Enabled {
		wantKept, wantPart = strings.Repeat("\xAA", 4), "\xAA\xAA"
		if string(beyond) != strings.Repeat("\xAA", 16) {
			t.Errorf("the buffer up to its capacity is %q", beyond)
		}
	}
	if kept != wantKept || string(part) != wantPart {
		t.Errorf("kept %q, %q; want %q, %q", kept, part, wantKept, wantPart)
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
}
