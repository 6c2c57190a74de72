package ids

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEmbeddedNamesCommonDevices(t *testing.T) {
	n, err := Load("", "")
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]func() (string, bool){
		"NVIDIA":   func() (string, bool) { return n.PCIVendor("10de") },
		"Raptor":   func() (string, bool) { return n.PCIDevice("8086", "a7a0") },
		"ConnectX": func() (string, bool) { return n.PCIDevice("15b3", "1017") },
		"3D":       func() (string, bool) { return n.PCIClass("0302") },
		"Ethernet": func() (string, bool) { return n.PCIClass("0200") },
		"Google":   func() (string, bool) { return n.USBVendor("18d1") },
		"CP210x":   func() (string, bool) { return n.USBDevice("10c4", "ea60") },
	} {
		if name, ok := got(); !ok || !strings.Contains(name, what) {
			t.Errorf("%q, %v; want %s", name, ok, what)
		}
	}
	for name, got := range map[string]func() (string, bool){
		"unknown device": func() (string, bool) { return n.PCIDevice("8086", "fffe") },
		"no hex":         func() (string, bool) { return n.PCIVendor("intel") },
		"empty":          func() (string, bool) { return n.PCIVendor("") },
		"last device":    func() (string, bool) { return n.PCIDevice("8086", "ffff") },
		"long class":     func() (string, bool) { return n.PCIClass("030000") },
	} {
		if got, ok := got(); ok {
			t.Errorf("%s: is %q", name, got)
		}
	}
}

func TestFileReplacesTheEmbeddedList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pci.ids")
	list := "# comment\n1234  Maker\n\tabcd  Thing\n\t\t0001 0002  Board\nC 03  Display\n\t02  3D\n"
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Load(file, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := n.PCIDevice("1234", "abcd"); got != "Thing" {
		t.Errorf("device: %q", got)
	}
	if _, ok := n.PCIVendor("10de"); ok {
		t.Error("the embedded list is still in use")
	}
	if _, ok := n.USBVendor("18d1"); !ok {
		t.Error("the other list is gone")
	}
}

// TestIDsInAnyOrder checks that devices are found that are not in the order of their numbers, and that the last name of a number counts.
func TestIDsInAnyOrder(t *testing.T) {
	l, err := parse("2000  Second\n1000  First\n\t10e0  Last\n\t1000  Old\n\t1000  New\n")
	if err != nil {
		t.Fatal(err)
	}
	n := &Names{pci: l}
	for device, want := range map[string]string{"10e0": "Last", "1000": "New"} {
		if got, _ := n.PCIDevice("1000", device); got != want {
			t.Errorf("%s: %q, want %q", device, got, want)
		}
	}
	for vendor, want := range map[string]string{"1000": "First", "2000": "Second"} {
		if got, _ := n.PCIVendor(vendor); got != want {
			t.Errorf("%s: %q, want %q", vendor, got, want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no ids here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, "nowhere"} {
		if _, err := Load(file, ""); err == nil {
			t.Errorf("%s: accepted", file)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1234  Maker\n\tabcd  Thing\nC 03  Display\n\t02  3D\n")
	f.Add("\tabcd  Thing before any vendor\nAT 0100  x\n\t0001  y\n")
	f.Fuzz(func(t *testing.T, list string) {
		pci, err := parse(list)
		if n := (&Names{pci: pci}); err == nil {
			n.PCIDevice("1234", "abcd")
		}
	})
}
