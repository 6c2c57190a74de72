package ui

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheTokenIsOnNoCommandLine: the browser opens a file that only the user can read, and that redirects to the address.
func TestTheTokenIsOnNoCommandLine(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const url = "http://127.0.0.1:8080/0123456789abcdef/?a=1&b=2"
	page, err := redirectPage(url)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, "0123456789abcdef") {
		t.Errorf("the name of the file is %s", page)
	}
	for path, want := range map[string]fs.FileMode{page: 0o600, filepath.Dir(page): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	data, err := os.ReadFile(filepath.Clean(page))
	if err != nil {
		t.Fatal(err)
	}
	if want := `content="0; url=http://127.0.0.1:8080/0123456789abcdef/?a=1&amp;b=2"`; !strings.Contains(string(data), want) {
		t.Errorf("the file does not have %s: %s", want, data)
	}
}
