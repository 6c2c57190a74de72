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
	"path/filepath"
	"time"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
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
	s := &story{Cluster: c, bin: bin, source: map[string]string{}, version: map[string]string{}, machines: &machines{flags: map[string][]string{with: {"AVX512F", "AMXTILE", "AMXBF16"}}}}
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

// start runs everything around the pods: the autoscaler, the kubelets, Assay and its workers.
func (s *story) start(ctx context.Context) error {
	var err error
	if s.api, err = stage.Client(s.User, nil); err != nil {
		return err
	}
	for _, module := range []string{karpenterModule, kwokModule} {
		if s.version[module], s.source[module], err = stage.Module(ctx, filepath.Join("hack", "autoscaler"), module); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{s.ApplyCRDs, s.runKwok, s.runKarpenter, s.runAssay} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	go (&fakeWorkers{s.api, s.machines}).run(ctx)
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
	return s.Run(ctx, cluster.Program{Name: kwok, Path: filepath.Join(s.bin, kwok), Args: args, Ready: cluster.Answers("http://" + address + "/healthz")})
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
		Name: karpenter, Path: filepath.Join(s.bin, karpenter), Ready: cluster.Answers("http://" + health + "/readyz"),
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
	apply := stage.Command(ctx, s.Cluster, "apply", "-f", "-")
	apply.Stdin, apply.Stderr = bytes.NewReader(charts.SchedulingPolicy(charts.FeatureRequest)), os.Stderr
	if err := apply.Run(); err != nil {
		return err
	}
	config, err := filepath.Abs(s.file("manager.yaml"))
	if err != nil {
		return err
	}
	for _, m := range []stage.Manager{{Part: stage.Controller}, {Part: stage.Webhook, Args: []string{"--scheduling"}}} {
		m.Path, m.Args = filepath.Join(s.bin, "assay-manager"), append(m.Args, "--config="+config)
		if _, err := m.Start(ctx, s.Cluster); err != nil {
			return err
		}
	}
	return nil
}
