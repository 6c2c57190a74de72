package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sandboxedVar is set in the child process of the test, because a process cannot leave a sandbox.
const sandboxedVar = "ASSAY_TEST_SANDBOXED"

func TestSandboxForbidsWhatAWorkerDoesNotNeed(t *testing.T) {
	if port := os.Getenv(sandboxedVar); port != "" {
		tryEverything(port)
		os.Exit(0)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), sandboxedVar+"="+port)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if strings.HasPrefix(stdout.String(), "none") {
		t.Skip("no Landlock of version 4 or later here: ", stdout.String())
	}
	want := "read a file: yes\nlist a directory: yes\nconnect to the server: yes\ncreate a file: no\nwrite a file: no\n" +
		"remove a file: no\nexecute a file: no\nlisten: no\nconnect elsewhere: no\n"
	if diff := cmp.Diff(want, stdout.String()); diff != "" {
		t.Errorf("in the sandbox (-want +got):\n%s", diff)
	}
}

// tryEverything enters the sandbox and prints what is still possible, also in other threads than the one that entered it.
func tryEverything(port string) {
	server, _ := strconv.ParseUint(port, 10, 16)
	what, err := Enter([]uint16{uint16(server)})
	if err != nil || !strings.Contains(what, "connecting") {
		fmt.Println("none", what, err)
		return
	}
	elsewhere := strconv.Itoa(int(server ^ 1))
	try := func(what string, action func() error) {
		result := make(chan error)
		for range 4 {
			go func() { result <- action() }()
		}
		answer := "yes"
		for range 4 {
			if err := <-result; errors.Is(err, os.ErrPermission) {
				answer = "no"
			} else if err != nil {
				answer = err.Error()
			}
		}
		fmt.Printf("%s: %s\n", what, answer)
	}
	try("read a file", func() error { _, err := os.ReadFile("there"); return err })
	try("list a directory", func() error { _, err := os.ReadDir("."); return err })
	try("connect to the server", func() error { return connect(port) })
	try("create a file", func() error { return os.WriteFile("new", nil, 0o644) })
	try("write a file", func() error { _, err := os.OpenFile("there", os.O_WRONLY, 0); return err })
	try("remove a file", func() error { return os.Remove("there") })
	try("execute a file", func() error { return exec.Command("/proc/self/exe", "-test.list=none").Run() })
	try("listen", func() error {
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // MPTCP is Go's default, and Landlock does not cover it
		_, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
		return err
	})
	try("connect elsewhere", func() error { return connect(elsewhere) })
}

func connect(port string) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err == nil {
		_ = c.Close()
	}
	return err
}

func TestRulesetAsksNoMoreThanTheKernelKnows(t *testing.T) {
	before := uint64(0)
	for version := 1; version <= 6; version++ {
		attr, _ := ruleset(version, true)
		if attr.Access_fs < before {
			t.Errorf("version %d forbids less than the one before", version)
		}
		before = attr.Access_fs
		if known := map[bool]uint64{false: 0, true: netV4}[version >= 4]; attr.Access_net != known {
			t.Errorf("version %d: network %#x, want %#x", version, attr.Access_net, known)
		}
		if known := map[bool]uint64{false: 0, true: scopeV6}[version >= 6]; attr.Scoped != known {
			t.Errorf("version %d: scope %#x, want %#x", version, attr.Scoped, known)
		}
	}
	if attr, _ := ruleset(4, false); attr.Access_net&0x2 != 0 {
		t.Error("connecting is restricted without ports")
	}
}
