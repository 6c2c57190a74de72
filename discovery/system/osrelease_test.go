package system_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/system"
)

func TestParseOSRelease(t *testing.T) {
	got := system.ParseOSRelease([]byte(`# a comment
ID=debian
NAME="Debian GNU/Linux"
SINGLE='one \two'
ESCAPED="say \"hi\" for \$5"
EMPTY=
NOT AN ASSIGNMENT
9LIVES=cat
bad-name=x
=x
CRLF=y` + "\r\n"))
	want := map[string]string{
		"ID": "debian", "NAME": "Debian GNU/Linux", "SINGLE": `one \two`, "ESCAPED": `say "hi" for $5`, "EMPTY": "", "CRLF": "y",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("os-release (-want +got):\n%s", diff)
	}
}

func TestVersionIDIsSplit(t *testing.T) {
	for id, want := range map[string][]string{
		"12":       {"12", ""},
		"22.04":    {"22", "04"},
		"4.14.8":   {"4", "14"},
		"9.3-beta": {"9", ""},
		"testing":  nil,
		"12-sid":   nil,
		"":         nil,
	} {
		r := system.ParseOSRelease([]byte("VERSION_ID=" + id))
		if minor, ok := r["VERSION_ID.minor"]; ok && minor == "" {
			t.Errorf("VERSION_ID=%s: VERSION_ID.minor is empty, want none", id)
		}
		major, ok := r["VERSION_ID.major"]
		if want == nil {
			if ok {
				t.Errorf("VERSION_ID=%s: major %q, want none", id, major)
			}
			continue
		}
		if diff := cmp.Diff(want, []string{major, r["VERSION_ID.minor"]}); diff != "" {
			t.Errorf("VERSION_ID=%s (-want +got):\n%s", id, diff)
		}
	}
}

func FuzzParseOSRelease(f *testing.F) {
	f.Add([]byte("ID=\"x\\\"\nVERSION_ID='1.2"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := system.ParseOSRelease(data)
		if len(r) > 258 {
			t.Errorf("%d variables", len(r))
		}
		for k, v := range r {
			if len(v) > host.MaxValueLength || !utf8.ValidString(v) || strings.ContainsAny(k, "=\n ") {
				t.Errorf("%q = %q", k, v)
			}
		}
	})
}

// TestEmptyVariableMakesNoLabel: a label without a value would say that the node has a system without a name.
func TestEmptyVariableMakesNoLabel(t *testing.T) {
	h, err := host.FromArchive([]byte("-- host.json --\n{}\n-- etc/os-release --\nID=\nVERSION_ID=\"\"\nNAME=X\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := system.New().Discover(t.Context(), h)
	if err != nil || len(r.Labels) > 0 {
		t.Errorf("error %v, labels %v, want none", err, r.Labels)
	}
	if v, ok := r.Features.Attributes[system.OSReleaseFeature].Elements["ID"]; !ok || v != "" {
		t.Errorf("ID is %q, set %t; the variable is set, and empty", v, ok)
	}
}
