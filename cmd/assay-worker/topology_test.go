package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFlagsOfNFDsUpdater starts with the arguments that Node Feature Discovery's chart writes.
func TestFlagsOfNFDsUpdater(t *testing.T) {
	opt, err := parseTopologyFlags([]string{
		"-podresources-socket=/host-var/lib/kubelet/pod-resources/kubelet.sock", "-sleep-interval=60s", "--watch-namespace=*",
		"-kubelet-config-uri=file:///host-var/kubelet-config", "-pods-fingerprint=false", "-kubelet-state-dir=/host-var/lib/kubelet",
		"-api-auth-token-file=/x", "-oneshot", "-no-publish", "-config=/c", "-port=8081", "-v=1", "-logtostderr",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o := opt.TopologyOptions
	if o.Socket != "/host-var/lib/kubelet/pod-resources/kubelet.sock" || o.Interval != time.Minute || o.KubeletConfig != "/host-var/kubelet-config" ||
		o.StateDir != "/host-var/lib/kubelet" || o.Configz != nil || !o.NoFingerprint || !o.Oneshot || !o.NoPublish || o.ConfigFile != "/c" || o.Port != 8081 || len(opt.warnings) != 0 {
		t.Errorf("options %+v, warnings %v", o, opt.warnings)
	}
	for uri, want := range map[string]string{
		"https://10.0.0.7:10250/configz":     "https://10.0.0.7:10250/configz",
		"https://node-1.example.com/configz": "https://node-1.example.com/configz",
		"https://fd00::7:10250/configz":      "https://[fd00::7]:10250/configz", // $(HOST_IP) of an IPv6 cluster
		"https://[fd00::7]:10250/configz":    "https://[fd00::7]:10250/configz",
	} {
		opt, err = parseTopologyFlags([]string{"-kubelet-config-uri=" + uri, "-api-auth-token-file=/x"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if c := opt.Configz; c == nil || c.URL != want || c.TokenFile != "/x" || c.CAFile == "" || c.Insecure {
			t.Errorf("%s: endpoint %+v, want %s", uri, c, want)
		}
	}
	if opt, err = parseTopologyFlags([]string{"-watch-namespace=research"}, io.Discard); err != nil || len(opt.warnings) != 1 {
		t.Errorf("error %v, warnings %v; want one about the namespace", err, opt.warnings)
	}
}

func TestInvalidTopologyFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"x": "all options are flags",
		"-kubelet-config-uri=http://n1:10250/configz": "write file:///PATH",
		"-kubelet-config-uri=https:///configz":        "write file:///PATH",
		"-kubelet-config-uri=/var/x":                  "write file:///PATH",
		"-sandbox=maybe":                              "write auto or off",
		"-sleep-interval=1ms":                         "write 0 or at least 1s",
		"-port=-1":                                    "write 0 to 65535",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"topology", arg}, io.Discard, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", arg, code, stderr.String())
		}
	}
}

// TestTopologyWithoutAKubelet: the error names the socket.
func TestTopologyWithoutAKubelet(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	config := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, config, "cpuManagerPolicy: static\n")
	var stderr bytes.Buffer
	code := run(t.Context(), []string{
		"topology", "-oneshot", "-no-publish", "-host-paths=native", "-podresources-socket=" + socket, "-kubelet-config-uri=file://" + config,
	}, io.Discard, &stderr)
	if code != exitFailure || !strings.Contains(stderr.String(), socket) {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
