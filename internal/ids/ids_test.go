package ids

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEmbeddedNamesCommonDevices(t *testing.T) {
	n, err := Embedded()
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
		n, err := Parse(strings.NewReader(list), strings.NewReader("0001  x\n"))
		if err == nil {
			n.PCIDevice("1234", "abcd")
		}
	})
}
