//go:build linux

// Command demo demonstrates Assay on this machine: its real hardware becomes labels of its Node on a real control plane.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
)

// namespace is the worker's namespace.
const namespace = stage.Namespace

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end")
	down := flag.Bool("down", false, "stop what an earlier demo left running, and nothing else")
	bin := flag.String("bin", "bin", "`directory` of assay-worker, assay-manager and assay")
	flag.Parse()
	cluster.Main("demo", func(ctx context.Context) error { return run(ctx, *bin, *keep, *down) })
}

func run(ctx context.Context, bin string, keep, down bool) error {
	dir, err := keepDir()
	if err != nil {
		return err
	}
	if err := cluster.Down(dir); err != nil || down { // leftovers of an earlier demo
		return err
	}
	if bin, err = programs(bin); err != nil {
		return err
	}
	opts := cluster.Options{Core: true, FakeNodes: true, Progress: os.Stdout}
	if keep {
		opts.RunDir, opts.Detach = dir, true
	}
	obtain(ctx)
	began := time.Now()
	c, err := cluster.Start(ctx, opts)
	if err != nil {
		return err
	}
	fmt.Printf("Kubernetes %s is up after %s.\n", version(c), time.Since(began).Round(100*time.Millisecond))
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err == nil {
		err = (&demo{cluster: c, client: client, bin: bin}).tell(ctx)
	}
	if keep && err == nil {
		fmt.Printf(kept, c.Kubeconfig, filepath.Dir(c.Program(kube.Kubectl)), c.LogDir())
		return nil
	}
	c.Stop()
	if err == nil {
		fmt.Println("\nEverything is stopped. `make demo KEEP=1` would have left it running.\n" +
			"`assay doctor` checks installations of the chart; the demo is not one.")
	}
	return err
}

// CompileVar is the environment variable that, set to 1, keeps the demo from downloading programs.
const CompileVar = "ASSAY_DEMO_COMPILE"

// obtain downloads the programs of Kubernetes, with checksums, if they would have to be compiled, which takes minutes. If it cannot, they are
// compiled.
func obtain(ctx context.Context) {
	if os.Getenv(kube.AssetsVar) != "" || os.Getenv(CompileVar) == "1" || kube.Cached(ctx, kube.Etcd, kube.APIServer, kube.Kubectl) {
		return
	}
	dir, err := (&kube.Fetcher{Index: os.Getenv("ASSAY_DEMO_INDEX")}).Fetch(ctx, os.Stdout)
	if err == nil {
		err = os.Setenv(kube.AssetsVar, dir)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Printf("Cannot download the programs of Kubernetes: %v. They are compiled instead.\n", err)
	}
}

// version returns the version of the API server.
func version(c *cluster.Cluster) string {
	discover, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		return ""
	}
	found, err := discover.ServerVersion()
	if err != nil {
		return ""
	}
	return found.GitVersion
}

const kept = `
It is left running. To look around:

    export KUBECONFIG=%s
    export PATH=%s:$PATH    # for kubectl

Logs are in %s. To stop it: make demo-down
`

// keepDir returns the directory of a demo that keeps running.
func keepDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "assay", "demo"), err
}

// programs returns the absolute path of bin, which must contain the programs.
func programs(bin string) (string, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return "", err
	}
	for _, name := range []string{worker, manager, cli} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("%w; build the programs first: make build", err)
		}
	}
	return bin, nil
}

// Names of the demonstrated programs.
const (
	worker  = "assay-worker"
	manager = "assay-manager"
	cli     = "assay"
)

// demo holds the state of the demo.
type demo struct {
	cluster *cluster.Cluster
	client  dynamic.Interface
	bin     string
	node    string
}

// tell runs the demo, chapter by chapter.
func (d *demo) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		d.registerNode, d.discover, d.label, d.applyRules, d.changeRule, d.review, d.rejectRule, d.fixRule,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) registerNode(ctx context.Context) error {
	say("Assay's kinds, a namespace, and a Node for this machine")
	if err := d.cluster.ApplyCRDs(ctx); err != nil {
		return err
	}
	if err := d.show(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	d.node = strings.ToLower(host)
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata:\n  name: %q\n  labels:\n    kubernetes.io/hostname: %q\n", d.node, d.node)
	if _, err := d.cluster.KubectlInput(ctx, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	return d.showAllLabels(ctx)
}

func (d *demo) discover(ctx context.Context) error {
	say("The worker discovers the hardware and publishes it")
	err := d.cluster.Run(ctx, cluster.Program{
		Name: worker, Path: filepath.Join(d.bin, worker),
		Args: []string{"--kubeconfig", d.cluster.Kubeconfig, "--node-name", d.node, "--namespace", namespace, "--port", "0"},
		Ready: func(ctx context.Context) error {
			_, err := d.get(ctx, nfdv1alpha1.NodeFeatureResource, namespace, d.node)
			return err
		},
	})
	if err != nil {
		return err
	}
	return d.show(ctx, "get", "nodefeatures", "--namespace", namespace)
}

func (d *demo) label(ctx context.Context) error {
	say("The controller turns it into labels")
	err := d.cluster.Run(ctx, cluster.Program{
		Name: manager, Path: filepath.Join(d.bin, manager),
		Args:  []string{"controller", "--kubeconfig", d.cluster.Kubeconfig, "--port=0", "--metrics-port=0"},
		Ready: d.hasLabel("feature.node.kubernetes.io/kernel-version.major", ""),
	})
	if err != nil {
		return err
	}
	return d.showAllLabels(ctx)
}

func (d *demo) applyRules(ctx context.Context) error {
	say("Two rules of our own: examples/platform.yaml and examples/tier.yaml")
	if err := d.show(ctx, "apply", "-f", "examples/platform.yaml", "-f", "examples/tier.yaml"); err != nil {
		return err
	}
	if err := d.await(ctx, "example.com/os", ""); err != nil {
		return err
	}
	if err := d.await(ctx, "example.com/tier", "standard"); err != nil {
		return err
	}
	if err := d.showLabels(ctx); err != nil {
		return err
	}
	// The status follows the labels within a second; before that, its columns would be empty.
	for _, name := range []string{"example-platform", "example-tier"} {
		if err := cluster.WaitFor(ctx, "the status of "+name, d.matchesNode(name)); err != nil {
			return err
		}
	}
	return d.show(ctx, "get", "nodefeaturerules")
}

func (d *demo) changeRule(ctx context.Context) error {
	say("A rule changes, and so does the label")
	patch := `[{"op":"replace","path":"/spec/rules/0/labels/example.com~1tier","value":"gold"}]`
	if err := d.show(ctx, "patch", "nodefeaturerule", "example-tier", "--type=json", "--patch="+patch); err != nil {
		return err
	}
	if err := d.await(ctx, "example.com/tier", "gold"); err != nil {
		return err
	}
	return d.showLabels(ctx)
}

// webhookObjects are the objects that the chart creates and the webhook updates.
const webhookObjects = `
apiVersion: v1
kind: Secret
metadata: {name: assay-webhook-cert, namespace: assay-system}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: assay}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: assay}
`

// Rules of the last chapters: the same one with errors, and without.
const (
	brokenRule = "test/demo/kernel-broken.yaml"
	fixedRule  = "test/demo/kernel.yaml"
)

func (d *demo) review(ctx context.Context) error {
	say("The webhook reviews rules before they are stored")
	if _, err := d.cluster.KubectlInput(ctx, webhookObjects, "apply", "-f", "-"); err != nil {
		return err
	}
	broken := &unstructured.Unstructured{}
	data, err := os.ReadFile(brokenRule)
	if err == nil {
		err = yaml.Unmarshal(data, broken)
	}
	if err != nil {
		return err
	}
	if _, err := (stage.Manager{Part: stage.Webhook, Path: filepath.Join(d.bin, manager)}).Start(ctx, d.cluster); err != nil {
		return err
	}
	return cluster.WaitFor(ctx, "the API server calls the webhook", func(ctx context.Context) error {
		if err := d.dryRun(ctx, broken); err == nil || !strings.Contains(err.Error(), "kernal") {
			return fmt.Errorf("the answer is: %w", err)
		}
		return nil
	})
}

func (d *demo) rejectRule(ctx context.Context) error {
	say("A rule with errors is rejected, with all errors at once")
	if err := d.printFile(brokenRule); err != nil {
		return err
	}
	if err := d.show(ctx, "apply", "-f", brokenRule); err == nil {
		return fmt.Errorf("%s was accepted", brokenRule)
	}
	return ctx.Err()
}

func (d *demo) fixRule(ctx context.Context) error {
	say("Fixed, it is accepted, and the label says why it is there")
	if err := d.show(ctx, "apply", "-f", fixedRule); err != nil {
		return err
	}
	if err := d.await(ctx, "example.com/recent-kernel", "true"); err != nil {
		return err
	}
	explain := exec.CommandContext(ctx, filepath.Join(d.bin, cli), "explain", d.node, "example.com/recent-kernel")
	explain.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig)
	return stage.Show(explain)
}

// printFile prints a file after the command that shows it.
func (d *demo) printFile(path string) error {
	data, err := os.ReadFile(path)
	if err == nil {
		fmt.Printf("$ cat %s\n%s", path, data)
	}
	return err
}

// showAllLabels shows the labels of the Node. kubectl lists them in any order.
func (d *demo) showAllLabels(ctx context.Context) error {
	args := []string{"label", "node", d.node, "--list"}
	fmt.Println("$ kubectl", stage.Line(args), "| sort")
	out, err := d.cluster.Kubectl(ctx, args...)
	lines := slices.Sorted(strings.Lines(out))
	fmt.Print(strings.Join(lines, ""))
	return err
}

// showLabels shows the labels from the examples.
func (d *demo) showLabels(ctx context.Context) error {
	return d.show(ctx, "get", "node", d.node,
		"--label-columns=example.com/os,example.com/kernel-major,example.com/kernel-minor,example.com/cpu-vendor,example.com/tier")
}

// show runs kubectl and prints the command and its output.
func (d *demo) show(ctx context.Context, args ...string) error {
	return stage.Show(stage.Command(ctx, d.cluster, args...))
}

// await waits until the Node has the label, with the value unless that is "". The error quotes the logs.
func (d *demo) await(ctx context.Context, key, value string) error {
	err := cluster.WaitFor(ctx, "label "+key+" on node "+d.node, d.hasLabel(key, value))
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, d.cluster.Log(worker), d.cluster.Log(manager))
	}
	return nil
}

// hasLabel returns a condition: the Node has the label, with the value unless that is "".
func (d *demo) hasLabel(key, value string) func(context.Context) error {
	return func(ctx context.Context) error {
		node, err := d.get(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", d.node)
		if err != nil {
			return err
		}
		if has, ok := node.GetLabels()[key]; !ok || value != "" && has != value {
			return fmt.Errorf("the label is %q", has)
		}
		return nil
	}
}

// matchesNode returns a condition: the status of a rule has the Node.
func (d *demo) matchesNode(rule string) func(context.Context) error {
	return func(ctx context.Context) error {
		object, err := d.get(ctx, nfdv1alpha1.NodeFeatureRuleResource, "", rule)
		if err != nil {
			return err
		}
		if n, _, _ := unstructured.NestedInt64(object.Object, "status", "matchedNodes"); n != 1 {
			return fmt.Errorf("it matches %d nodes", n)
		}
		return nil
	}
}

// get reads an object. Starting kubectl for each read would use several times more CPU time than the control plane.
func (d *demo) get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return d.client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// dryRun creates a rule without storing it.
func (d *demo) dryRun(ctx context.Context, rule *unstructured.Unstructured) error {
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := d.client.Resource(nfdv1alpha1.NodeFeatureRuleResource).Create(ctx, rule.DeepCopy(), options)
	return err
}

// say prints the title of a chapter.
func say(title string) { fmt.Printf("\n== %s\n", title) }
