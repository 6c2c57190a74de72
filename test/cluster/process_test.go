//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// parentVar makes this test binary the parent in TestProgramsDieWithTheirParent: it starts a program and waits forever.
const parentVar = "ASSAY_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVar); dir != "" {
		p, err := startProcess(Program{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}}, dir, false)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.cmd.Process.Pid)
		<-p.done
	}
	os.Exit(m.Run())
}

func TestProgramsDieWithTheirParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVar+"="+t.TempDir())
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Process.Kill() }()
	record := processRecord{Name: "sleep"}
	if _, err := fmt.Fscan(stdout, &record.PID); err != nil {
		t.Fatal(err)
	}
	if record.Started, _, err = procStat(record.PID); err != nil {
		t.Fatal(err)
	}
	if !record.alive() {
		t.Fatal("the program does not run")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "killed"
	ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
	defer cancel()
	err = poll(ctx, func(context.Context) error {
		if record.alive() {
			return errors.New("it still runs")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDownSparesProcessOfSameNumber(t *testing.T) {
	p, err := startProcess(Program{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}}, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	earlier := processRecord{Name: "etcd", PID: p.cmd.Process.Pid, Started: "1"}
	if err := earlier.kill(); err != nil {
		t.Fatal(err)
	}
	if !p.running() {
		t.Error("killed a process that only has the number of the one recorded")
	}
}

func TestPausedProgramCanBeKilled(t *testing.T) {
	p, err := startProcess(Program{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}}, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.kill()
	if p.running() {
		t.Error("it still runs")
	}
}

func TestErrorQuotesEndOfLog(t *testing.T) {
	script := `for i in $(seq 100); do echo "line $i"; done; echo "the reason" >&2; exit 3`
	p, err := startProcess(Program{
		Name: "failing", Path: "/bin/sh", Args: []string{"-c", script},
		Ready: func(context.Context) error { return errors.New("no answer") },
	}, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	err = p.waitReady(t.Context())
	if err == nil {
		t.Fatal("it became ready")
	}
	for _, want := range []string{"start failing", "exit status 3", "line 100\n", "the reason"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 1\n") {
		t.Errorf("quotes the whole log: %v", err)
	}
}

func TestHeldPortIsFreeForItsServerOnly(t *testing.T) {
	held, err := holdPort()
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	for range 2 { // the second time is a restart
		server, err := net.Listen("tcp", held.address())
		if err != nil {
			t.Fatalf("its server cannot listen: %v", err)
		}
		_ = server.Close()
	}
	for range 200 {
		other, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		if other.Addr().String() == held.address() {
			t.Fatal("the port was assigned to another process")
		}
	}
}

func TestSchedulerConfig(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"NothingGiven": {"", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: K}`},
		"KeepsWhatIsGiven": {`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
clientConnection: {qps: 100, kubeconfig: other}
extenders: [{urlPrefix: "http://127.0.0.1:1"}]`, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
clientConnection: {qps: 100, kubeconfig: K}
extenders: [{urlPrefix: "http://127.0.0.1:1"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := schedulerConfig([]byte(test.config), "K")
			if err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			if err := errors.Join(yaml.Unmarshal(data, &got), yaml.Unmarshal([]byte(test.want), &want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSweepRemovesAbandonedDirectoriesOnly(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	living, unlock, err := makeDir("")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	dead, release, err := makeDir("")
	if err != nil {
		t.Fatal(err)
	}
	release()
	other := temp + "/something-else"
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	sweep(temp)
	for dir, want := range map[string]bool{living: true, dead: false, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: there is %v, want %v", dir, err == nil, want)
		}
	}
}

func TestRefusesDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := makeDir(dir); err == nil {
		t.Error("took a directory that holds something else")
	}
}
