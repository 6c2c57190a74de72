//go:build linux

// Command autoscaler shows that Karpenter scales up for pods that require features.
//
// Karpenter with its KWOK provider, kwok and the control plane are real. The machines are not: kwok plays the kubelets, and this program
// plays Assay's workers.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

func main() {
	bin := flag.String("bin", "bin", "`directory` of assay, assay-manager, karpenter, kwok and dra-kwok-driver")
	flag.Parse()
	cluster.Main("autoscaler", func(ctx context.Context) error { return run(ctx, *bin) })
}

func run(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{
		Scheduler: true, ControllerManager: true, DisableAdmission: []string{"ServiceAccount"}, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer c.Stop()
	s := &story{Cluster: c, bin: bin, machines: &machines{flags: map[string][]string{with: {"AVX512F", "AMXTILE", "AMXBF16"}}}}
	if err := s.start(ctx); err != nil {
		return err
	}
	fmt.Printf("Kubernetes %s, Karpenter %s and kwok %s are up after %s.\n", kube.Version, s.version[karpenterModule], s.version[kwokModule],
		time.Since(began).Round(100*time.Millisecond))
	if err := s.tell(ctx); err != nil {
		return fmt.Errorf("%w\n%s\n%s\n%s", err, c.Log(karpenter), c.Log("controller"), c.Log(kwok))
	}
	s.summary()
	fmt.Printf("\nThe test took %s.\n", time.Since(began).Round(time.Second))
	return nil
}

// The modules of hack/autoscaler, and the programs that are built from them.
const (
	karpenterModule = "sigs.k8s.io/karpenter"
	kwokModule      = "sigs.k8s.io/kwok"
	karpenter       = "karpenter"
	kwok            = "kwok"
)

// namespace is that of Assay.
const namespace = "assay-system"

// start runs everything around the pods: the autoscaler, the kubelets, Assay and its workers.
func (s *story) start(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, nfdv1alpha1.AddToScheme, assayv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if s.api, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := s.findModules(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.ApplyCRDs, s.runKwok, s.runKarpenter, s.runAssay} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	go (&fakeWorkers{s.api, s.machines}).run(ctx)
	return nil
}

// findModules finds the sources of Karpenter and kwok, which contain their CustomResourceDefinitions and stages.
func (s *story) findModules(ctx context.Context) error {
	s.source, s.version = map[string]string{}, map[string]string{}
	for _, module := range []string{karpenterModule, kwokModule} {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module)
		cmd.Dir, cmd.Stderr = filepath.Join("hack", "autoscaler"), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("go list -m %s: %w", module, err)
		}
		s.version[module], s.source[module], _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	}
	return nil
}

// runKwok runs the kubelets of all Nodes that Karpenter's KWOK provider creates.
func (s *story) runKwok(ctx context.Context) error {
	address, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + s.Kubeconfig, "--server-address=" + address, "--node-lease-duration-seconds=40",
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
	}
	for _, stage := range []string{
		"node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
		"pod/fast/pod-ready", "pod/fast/pod-delete", "pod/fast/pod-complete",
	} {
		args = append(args, "--config="+filepath.Join(s.source[kwokModule], "kustomize", "stage", stage+".yaml"))
	}
	return s.Run(ctx, cluster.Program{Name: kwok, Path: filepath.Join(s.bin, kwok), Args: args, Ready: answers(address, "healthz")})
}

// runKarpenter runs Karpenter with the instance types of this test.
func (s *story) runKarpenter(ctx context.Context) error {
	for _, dir := range []string{"pkg/apis/crds", "kwok/apis/crds"} {
		if _, err := s.Kubectl(ctx, "apply", "-f", filepath.Join(s.source[karpenterModule], dir)); err != nil {
			return err
		}
	}
	if _, err := s.Kubectl(ctx, "wait", "crd", "--all", "--for=condition=Established", "--timeout=2m"); err != nil {
		return err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	types, err := filepath.Abs(s.file("instance-types.json"))
	if err != nil {
		return err
	}
	return s.Run(ctx, cluster.Program{
		Name: karpenter, Path: filepath.Join(s.bin, karpenter), Ready: answers(health, "readyz"),
		Env: []string{
			"KUBECONFIG=" + s.Kubeconfig, "INSTANCE_TYPES_FILE_PATH=" + types,
			"DISABLE_LEADER_ELECTION=true", "METRICS_PORT=0", "HEALTH_PROBE_PORT=" + port(health),
		},
	})
}

// runAssay creates the policy that adds labels of requests to node selectors, and runs the controller and the webhook, which only reviews.
func (s *story) runAssay(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "apply", "-f", s.file("assay.yaml")); err != nil {
		return err
	}
	apply := s.command(ctx, "apply", "-f", "-")
	apply.Stdin, apply.Stderr = bytes.NewReader(charts.SchedulingPolicy(charts.FeatureRequest)), os.Stderr
	if err := apply.Run(); err != nil {
		return err
	}
	config, err := filepath.Abs(s.file("manager.yaml"))
	if err != nil {
		return err
	}
	serve, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	for part, args := range map[string][]string{
		"controller": nil,
		"webhook":    {"--scheduling", "--webhook-url=https://" + serve, "--webhook-port=" + port(serve), "--shutdown-delay=0s"},
	} {
		health, err := cluster.FreeAddress()
		if err != nil {
			return err
		}
		err = s.Run(ctx, cluster.Program{
			Name: part, Path: filepath.Join(s.bin, "assay-manager"), Ready: answers(health, "readyz"),
			Args: append([]string{
				part, "--kubeconfig=" + s.Kubeconfig, "--namespace=" + namespace, "--config=" + config,
				"--port=" + port(health), "--metrics-port=0",
			}, args...),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
