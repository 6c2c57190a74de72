package host_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
)

const archive = `A machine for this test.
-- host.json --
{"nodeName": "n1", "uname": {"release": "6.1.0"}, "cpu": {"arch": "amd64", "flags": ["AVX"]}}
-- a/file --
text
-- a/link -> file --
-- up -> a --
-- d/ --
one: 1
empty:
sub/two: 2
to -> ../a/file

-- none/ --
-- z (zeros 5) --
-- b (base64) --
AAEC
-- g (gzip) --
text
-- broken (error EIO) --
-- pipe (pipe) --
`

func open(t *testing.T, text string) host.Host {
	t.Helper()
	h, err := host.FromArchive([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestArchive(t *testing.T) {
	h := open(t, archive)
	for name, want := range map[string]string{
		"a/file": "text\n", "a/link": "text\n", "up/link": "text\n", "d/one": "1\n", "d/empty": "\n", "d/sub/two": "2\n",
		"d/to": "text\n", "z": "\x00\x00\x00\x00\x00", "b": "\x00\x01\x02",
	} {
		if got, err := h.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("ReadFile(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	if got, err := h.ReadFile("g"); err != nil || !strings.HasPrefix(string(got), "\x1f\x8b") {
		t.Errorf("ReadFile(g) = %q, %v, want gzip", got, err)
	}
	names, err := h.ReadDir("up/../d")
	if err == nil {
		t.Errorf("ReadDir of a path with .. = %v, want an error", names)
	}
	if names, err = h.ReadDir("d"); err != nil || cmp.Diff([]string{"empty", "one", "sub", "to"}, names) != "" {
		t.Errorf("ReadDir(d) = %v, %v", names, err)
	}
	if names, err = h.ReadDir("none"); err != nil || len(names) != 0 {
		t.Errorf("ReadDir(none) = %v, %v, want none", names, err)
	}
	if got := h.Resolve("up/link"); got != "a/file" {
		t.Errorf("Resolve(up/link) = %q, want a/file", got)
	}
	if got, err := h.ReadLink("up/link"); err != nil || got != "file" {
		t.Errorf("ReadLink(up/link) = %q, %v, want file", got, err)
	}
	u, err := h.System.Uname()
	if err != nil || u.Release != "6.1.0" || h.System.NodeName() != "n1" || !h.System.CPU().Has("AVX") {
		t.Errorf("system = %v, %v, %q, %v", u, err, h.System.NodeName(), h.System.CPU())
	}
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	h := open(t, archive)
	for name, want := range map[string]struct {
		text string
		is   error
	}{
		"missing":  {"open /missing: file does not exist", fs.ErrNotExist},
		"broken":   {"open /broken: input/output error", syscall.EIO},
		"d":        {"open /d: not a regular file but a directory", nil},
		"pipe":     {"open /pipe: not a regular file but a pipe", nil},
		"../x":     {"open /../x: invalid argument", fs.ErrInvalid},
		"a/file/x": {"open /a/file/x: file does not exist", fs.ErrNotExist},
	} {
		_, err := h.ReadFile(name)
		if err == nil || err.Error() != want.text || want.is != nil && !errors.Is(err, want.is) {
			t.Errorf("ReadFile(%q): %v, want %s", name, err, want.text)
		}
	}
}

func TestArchiveRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"form":       {"-- x (zip) --\n", `section "x (zip)": unknown form "zip"`},
		"error":      {"-- x (error EWHAT) --\n", `section "x (error EWHAT)": unknown error "EWHAT"`},
		"path":       {"-- /proc/x --\n", `section "/proc/x": invalid file name "/proc/x": use for example proc/modules`},
		"line":       {"-- d/ --\nnothing\n", `section "d/": line "nothing" is neither "name: value" nor "name -> target"`},
		"json":       {"-- host.json --\n{\"nodename\": 1}\n", `section "host.json": json: cannot unmarshal`},
		"json field": {"-- host.json --\n{\"hostname\": \"x\"}\n", `section "host.json": json: unknown field "hostname"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := host.FromArchive([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestCleanMakesTextOfStrangersHarmless(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"space around":         {" up\n", "up"},
		"escape sequence":      {"\x1b]0;title\x07x", "_]0;title_x"},
		"line break":           {"a\nlabel=forged", "a_label=forged"},
		"ends at NUL":          {"serial\x00junk", "serial"},
		"invalid UTF-8":        {"a\xffb", "a_b"},
		"reordering character": {"a\u202egpj", "a_gpj"},
		"zero-width character": {"a\u200bb", "a_b"},
		"other scripts stay":   {"Großrechner 大型機", "Großrechner 大型機"},
		"too long":             {strings.Repeat("x", 5000), strings.Repeat("x", host.MaxValueLength)},
		"never half a letter":  {strings.Repeat("ß", 1024) + "ß", strings.Repeat("ß", 1024)},
		"cut inside a letter":  {"x" + strings.Repeat("ß", 1024), "x" + strings.Repeat("ß", 1023)},
		"nothing":              {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := host.Clean([]byte(tt.in)); got != tt.want {
				t.Errorf("Clean(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("a\x1b\xff\u202eb\x00c"))
	f.Add([]byte(strings.Repeat("\xffß", 1500)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := host.Clean(data)
		if len(s) > host.MaxValueLength || !utf8.ValidString(s) {
			t.Fatalf("Clean(%q) = %q: too long or not UTF-8", data, s)
		}
		for _, r := range s {
			if !unicode.IsPrint(r) {
				t.Fatalf("Clean(%q) = %q: %q is not printable", data, s, r)
			}
		}
		if again := host.Clean([]byte(s)); again != s {
			t.Fatalf("Clean(%q) = %q, cleaned again %q", data, s, again)
		}
	})
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte(archive))
	f.Add([]byte("-- a -> b --\n-- b -> a --\n-- c/ --\n../x: 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := host.FromArchive(data)
		if err != nil {
			return
		}
		// Whatever the archive contains, names stay in their directory, and values can be published.
		left := 1000
		var walk func(dir string)
		walk = func(dir string) {
			names, err := h.ReadDir(dir)
			if left--; err != nil || left < 0 || strings.Count(dir, "/") > 50 {
				return
			}
			for _, n := range names {
				if n == "" || n == "." || n == ".." || strings.Contains(n, "/") {
					t.Errorf("got the entry %q in %s, want a name", n, dir)
				}
				name := strings.TrimPrefix(dir+"/"+n, "./")
				value, err := h.ReadAttribute(name)
				if err == nil && (len(value) > host.MaxValueLength || value != host.Clean([]byte(value))) {
					t.Errorf("got the value %q of %s, want a clean one", value, name)
				}
				walk(name)
			}
		}
		walk(".")
	})
}

// TestArchiveKeepsEveryByte records files of all kinds, and reads the same bytes from the archive.
func TestArchiveKeepsEveryByte(t *testing.T) {
	files := map[string]string{
		"line": "a\n", "lines": "a\nb\n", "no-newline": "a\nb", "empty": "", "zero": "a\x00b\n", "section": "a\n-- b --\nc\n",
		"not-utf8": "\xff\n", "blank": "\n",
	}
	var text strings.Builder
	for name, data := range files {
		fmt.Fprintf(&text, "-- %s (base64) --\n%s\n", name, base64.StdEncoding.EncodeToString([]byte(data)))
	}
	read := func(_ context.Context, h host.Host) {
		for name := range files {
			_, _ = h.ReadFile(name)
		}
	}
	again, err := host.Record(t.Context(), open(t, `-- host.json --
{"nodeName": "n1", "uname": {"release": "6.1.0"}, "cpu": {"arch": "amd64"}}
`+text.String()), read)
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, string(again))
	for name, want := range files {
		if got, err := h.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	if strings.Contains(string(again), "-- lines (base64)") || !strings.Contains(string(again), "-- zero (base64)") {
		t.Errorf("text is encoded, or binary data is not:\n%s", again)
	}
}
