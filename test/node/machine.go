//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// Addresses inside the network namespace, which are invisible outside.
const (
	nodeName   = "node-1"
	nodeIP     = "10.10.0.2"
	gatewayIP  = "10.10.0.1"
	podRange   = "10.244.0.0/24"
	podGateway = "10.244.0.1"
)

// machine is a node with its control plane, and the programs to inspect it with.
type machine struct {
	*cluster.Cluster
	root   string // of the project
	dir    string
	client *kubernetes.Clientset
}

// startMachine starts everything until the Node is ready, and prints how long each part took.
func startMachine(ctx context.Context, dir string, say func(string)) (*machine, error) {
	if err := network(ctx); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if err := makeCgroups(cgroupName(dir)); err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	root, err := kube.Root()
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Scheduler: true, ControllerManager: true, RunDir: filepath.Join(dir, "cluster"),
		// Pods use the Service of the API server, so it needs an address other than loopback.
		APIServerArgs: []string{
			"--bind-address=0.0.0.0", "--advertise-address=" + nodeIP, "--endpoint-reconciler-type=lease",
			"--kubelet-preferred-address-types=InternalIP",
			"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, auditLog),
		},
	})
	if err != nil {
		return nil, err
	}
	m := &machine{Cluster: c, root: root, dir: dir}
	if m.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return m, err
	}
	say("the control plane answers")
	if err := serveDNS(ctx, m.client, nodeIP); err != nil {
		return m, err
	}
	for _, part := range []struct {
		what  string
		start func(context.Context) error
	}{
		{"the node has a file system of its own", m.disk},
		{"containerd runs", m.containerd},
		{"the images are imported", m.images},
		{"kubelet runs", m.kubelet},
		{"kube-proxy runs", m.proxy},
		{"the Node is ready", m.ready},
	} {
		if err := part.start(ctx); err != nil {
			return m, err
		}
		say(part.what)
	}
	return m, nil
}

// network creates a pair of virtual Ethernet devices for the node's address: a kubelet rejects a loopback address, and not every
// kernel has dummy devices.
func network(ctx context.Context) error {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type veth peer name node1",
		"addr add " + nodeIP + "/24 dev node0",
		"link set node0 up",
		"link set node1 up",
		"route add default via " + gatewayIP,
	} {
		if _, err := output(ctx, "/", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// write writes a configuration file and returns its path.
func (m *machine) write(name, text string) (string, error) {
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// diskDir is the node's file system for pods and their logs. It is small, so that it can be filled.
const (
	diskDir  = "disk"
	diskSize = "64m"
)

// disk mounts the node's file system.
func (m *machine) disk(context.Context) error {
	if err := os.MkdirAll(m.path(diskDir), 0o755); err != nil {
		return err
	}
	return unix.Mount("node", m.path(diskDir), "tmpfs", 0, "mode=0755,size="+diskSize)
}

// saveLogs copies the logs of pods, which are on the node's file system, to the directory of the run.
func (m *machine) saveLogs() {
	_ = os.CopyFS(m.path(diskDir+"/podlogs"), os.DirFS(m.path(diskDir+"/podlogs"))) // there may be none
}

func (m *machine) socket() string { return "/run/containerd/containerd.sock" }

// containerd starts the runtime. It must not lower the OOM score where the test itself is not allowed to (CAP_SYS_RESOURCE).
func (m *machine) containerd(ctx context.Context) error {
	_, err := m.write("cni/10-bridge.conflist", `{
  "cniVersion": "1.0.0", "name": "bridge",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "`+podRange+`", "gateway": "`+podGateway+`"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`)
	if err != nil {
		return err
	}
	if err := m.mirrorConfig(); err != nil {
		return err
	}
	config, err := m.write("containerd.toml", `version = 2
root = "`+m.path("containerd")+`"
state = "/run/containerd"
[grpc]
  address = "`+m.socket()+`"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "`+pauseImage+`"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "`+m.path("certs.d")+`"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "`+cniDir+`"
    conf_dir = "`+m.path("cni")+`"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "`+snapshotter(m.dir)+`"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`)
	if err != nil {
		return err
	}
	return m.Run(ctx, cluster.Program{
		Name: "containerd", Path: "/usr/bin/containerd", Args: []string{"--config=" + config},
		Ready: func(ctx context.Context) error {
			_, err := output(ctx, "/", "ctr", "--address="+m.socket(), "version")
			return err
		},
	})
}

// images imports the images that build made.
func (m *machine) images(ctx context.Context) error {
	archives, err := filepath.Glob(m.path(imageDir + "/*.oci.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if _, err := output(ctx, "/", "ctr", "--address="+m.socket(), "--namespace=k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// kubelet starts the kubelet with the identity of the node.
func (m *machine) kubelet(ctx context.Context) error {
	user, err := m.NewUser("system:node:"+nodeName, "system:nodes")
	if err != nil {
		return err
	}
	file, err := m.configureKubelet(nil)
	if err != nil {
		return err
	}
	return m.Run(ctx, cluster.Program{
		Name: kube.Kubelet, Path: m.path(binDir + "/" + kube.Kubelet),
		Args: []string{
			"--config=" + file, "--kubeconfig=" + user.Kubeconfig, "--hostname-override=" + nodeName, "--node-ip=" + nodeIP,
			"--root-dir=" + m.path(diskDir+"/kubelet"), "--cert-dir=" + m.path("kubelet-pki"),
		},
		Ready: func(ctx context.Context) error {
			_, err := m.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
			return err
		},
	})
}

// configureKubelet writes the kubelet's configuration, with some settings replaced.
func (m *machine) configureKubelet(replaced map[string]any) (path string, err error) {
	settings := map[string]any{
		"apiVersion":                       "kubelet.config.k8s.io/v1beta1",
		"kind":                             "KubeletConfiguration",
		"authentication":                   map[string]any{"x509": map[string]any{"clientCAFile": m.path("cluster/pki/ca.crt")}, "anonymous": map[string]any{"enabled": false}},
		"authorization":                    map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint":         "unix://" + m.socket(),
		"cgroupDriver":                     "cgroupfs",
		"kubeReserved":                     map[string]string{"cpu": "100m"}, // a part of one CPU, which is shared
		"cgroupRoot":                       "/" + cgroupName(m.dir),
		"failCgroupV1":                     false, // still in use, for example here
		"failSwapOn":                       false,
		"clusterDNS":                       []string{nodeIP},
		"clusterDomain":                    clusterDomain,
		"podCIDR":                          podRange,
		"resolvConf":                       "",
		"registerNode":                     true,
		"registerWithTaints":               []corev1.Taint{{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule}},
		"staticPodPath":                    "",
		"readOnlyPort":                     0,
		"volumePluginDir":                  m.path("volumeplugins"),
		"podLogsDir":                       m.path(diskDir + "/podlogs"),
		"nodeStatusUpdateFrequency":        "5s",
		"evictionHard":                     map[string]string{"memory.available": strconv.Itoa(evictMemory>>20) + "Mi"},
		"evictionPressureTransitionPeriod": "1s",
		"imageGCHighThresholdPercent":      100, // imported images cannot be pulled again
	}
	maps.Copy(settings, replaced)
	config, err := yaml.Marshal(settings)
	if err != nil {
		return "", err
	}
	return m.write("kubelet.yaml", string(config))
}

// proxy starts kube-proxy for the addresses of Services.
func (m *machine) proxy(ctx context.Context) error {
	user, err := m.NewUser("system:kube-proxy")
	if err != nil {
		return err
	}
	config, err := yaml.Marshal(map[string]any{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "iptables",
		"hostnameOverride": nodeName,
		"clientConnection": map[string]any{"kubeconfig": user.Kubeconfig},
		// Zero keeps the kernel's limits, which apply to the whole machine. Without masquerading, pods on the same bridge would
		// respond to each other directly, without address translation.
		"iptables":  map[string]any{"masqueradeAll": true},
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	if err != nil {
		return err
	}
	file, err := m.write("kube-proxy.yaml", string(config))
	if err != nil {
		return err
	}
	return m.Run(ctx, cluster.Program{
		Name: kube.Proxy, Path: m.path(binDir + "/" + kube.Proxy), Args: []string{"--config=" + file},
		Ready: func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:10256")
			if err == nil {
				err = conn.Close()
			}
			return err
		},
	})
}

// ready waits until the Node is ready for pods that tolerate the start-up taint.
func (m *machine) ready(ctx context.Context) error {
	return cluster.WaitFor(ctx, "node "+nodeName, func(ctx context.Context) error {
		node, err := m.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var problems []string
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status != "True" {
				problems = append(problems, condition.Message)
			}
		}
		for _, taint := range node.Spec.Taints {
			if isStartupTaint(taint) {
				continue
			}
			problems = append(problems, "taint "+taint.ToString())
		}
		if len(problems) > 0 || len(node.Status.Conditions) == 0 {
			return errors.New("not ready: " + strings.Join(problems, "; "))
		}
		return nil
	})
}
