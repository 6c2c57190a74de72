//go:build linux

// Command kueue shows that Kueue admits a job that requires features to the nodes that have them, and places a job in one rack by the
// levels of a NodeBaseline.
//
// Kueue and the control plane are real; the nodes are objects without a kubelet, so the pods are bound and do not run. Kueue is configured
// with what `assay export --for kueue` prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

func main() {
	bin := flag.String("bin", "bin", "`directory` of assay, assay-manager and kueue")
	flag.Parse()
	cluster.Main("kueue", func(ctx context.Context) error { return run(ctx, *bin) })
}

func run(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{
		Scheduler: true, ControllerManager: true, FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}, Progress: os.Stdout,
		APIServerArgs: []string{"--enable-aggregator-routing=false"}, // a Service may then be the name of this machine
	})
	if err != nil {
		return err
	}
	defer c.Stop()
	s := &story{Cluster: c, bin: bin}
	for _, step := range []func(context.Context) error{s.ApplyCRDs, s.runAssay, s.createNodes, s.runKueue, s.configureKueue, s.submit, s.levels} {
		if err := step(ctx); err != nil {
			state, _ := c.Kubectl(ctx, "get", "workloads,jobs,pods,events", "--namespace=ml", "--output=wide")
			return fmt.Errorf("%w\n%s\n%s\n%s", err, c.Log("kueue"), c.Log("controller"), state)
		}
	}
	fmt.Printf("\nThe test took %s.\n", time.Since(began).Round(time.Second))
	return nil
}

// story is the state of the test.
type story struct {
	*cluster.Cluster
	bin string // directory of the programs
}

// file returns the path of a file of this test.
func (s *story) file(name string) string { return filepath.Join("test", "kueue", name) }

// runAssay runs the controller and the webhook, which adds the label of the request to templates of Jobs.
func (s *story) runAssay(ctx context.Context) error {
	namespaces, err := os.ReadFile(s.file("cluster.yaml"))
	if err != nil {
		return err
	}
	before, _, _ := strings.Cut(string(namespaces), "\n---\napiVersion: assay.dev/") // the webhook reviews what comes then
	if _, err := s.KubectlInput(ctx, before, "apply", "-f", "-"); err != nil {
		return err
	}
	config := filepath.Join(s.Dir(), "assay.yaml")
	if err := os.WriteFile(config, []byte("materializedRequests: {total: 10}\nfeatureGates: {FeatureScheduling: true}\n"), 0o600); err != nil {
		return err
	}
	for _, m := range []stage.Manager{{Part: stage.Controller}, {Part: stage.Webhook, Args: []string{"--scheduling", "--request-selectors"}}} {
		m.Path, m.Args = filepath.Join(s.bin, "assay-manager"), append(m.Args, "--config="+config)
		if _, err := m.Start(ctx, s.Cluster); err != nil {
			return err
		}
	}
	return nil
}

// ready is the status of a node that runs pods.
const ready = `{"status":{"nodeInfo":{"bootID":"boot","architecture":"amd64","operatingSystem":"linux"},` +
	`"allocatable":{"cpu":"4","memory":"8Gi","pods":"20"},"capacity":{"cpu":"4","memory":"8Gi","pods":"20"},` +
	`"conditions":[{"type":"Ready","status":"True"}]}}`

// createNodes creates the nodes and their features, and waits until the controller knows their shapes.
func (s *story) createNodes(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "apply", "-f", s.file("cluster.yaml")); err != nil {
		return err
	}
	for _, node := range []string{"plain", "amx"} {
		if _, err := s.Kubectl(ctx, "patch", "node", node, "--subresource=status", "--type=strategic", "--patch="+ready); err != nil {
			return err
		}
	}
	return cluster.WaitFor(ctx, "the shapes of both nodes", func(ctx context.Context) error {
		return s.prints(ctx, []string{"m5=", "m7=true"}, "get", "nodeshapes",
			`--output=jsonpath={range .items[*]}{.status.key.node\.kubernetes\.io/instance-type}={.status.labels.features\.assay\.dev/ml\.amx}{"\n"}{end}`)
	})
}

// prints runs kubectl and returns an error if the output is not these lines.
func (s *story) prints(ctx context.Context, want []string, args ...string) error {
	out, err := s.Kubectl(ctx, args...)
	if got := strings.TrimSpace(out); err == nil && got != strings.Join(want, "\n") {
		err = fmt.Errorf("kubectl %s printed %q, want %q", strings.Join(args, " "), got, want)
	}
	return err
}

// runKueue installs what Kueue's module contains, except the Deployment, and runs its controller manager.
func (s *story) runKueue(ctx context.Context) error {
	version, source, err := stage.Module(ctx, filepath.Join("hack", "kueue"), "sigs.k8s.io/kueue")
	if err != nil {
		return err
	}
	serve, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(serve)
	if err := s.install(ctx, filepath.Join(source, "config", "default"), port); err != nil {
		return err
	}
	config, err := os.ReadFile(s.file("manager.yaml"))
	if err != nil {
		return err
	}
	certs := filepath.Join(s.Dir(), "kueue-certs")
	text := strings.NewReplacer("HEALTH", health, "PORT", port, "CERTS", certs).Replace(string(config))
	file := filepath.Join(s.Dir(), "kueue.yaml")
	if err := errors.Join(os.Mkdir(certs, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		return err
	}
	answers := cluster.Answers("http://" + health + "/readyz")
	if err := s.Run(ctx, cluster.Program{
		Name: "kueue", Path: filepath.Join(s.bin, "kueue"),
		Args: []string{"--config=" + file, "--feature-gates=VisibilityOnDemand=false"}, Env: []string{"KUBECONFIG=" + s.Kubeconfig},
		Ready: func(ctx context.Context) error {
			if err := s.mount(ctx, certs); err != nil {
				return err
			}
			return answers(ctx)
		},
	}); err != nil {
		return err
	}
	fmt.Printf("Kueue %s is up.\n", version)
	return nil
}

// install applies Kueue's CustomResourceDefinitions, webhooks and the Secret of its certificate, with a Service whose name resolves to
// this machine: the API server verifies the certificate that Kueue issues for the Service.
func (s *story) install(ctx context.Context, config, port string) error {
	manifests, err := s.Kubectl(ctx, "kustomize", config)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	var objects []string
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return err
		}
		kind, _ := object["kind"].(string)
		if kind != "CustomResourceDefinition" && kind != "Secret" && !strings.HasSuffix(kind, "WebhookConfiguration") {
			continue
		}
		setPorts(object, number)
		out, err := json.Marshal(object)
		if err != nil {
			return err
		}
		objects = append(objects, string(out))
	}
	objects = append(objects, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kueue-webhook-service", "namespace": "kueue-system"}, `+
		`"spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": `+port+`}]}}`)
	_, err = s.KubectlInput(ctx, strings.Join(objects, "\n---\n"), "apply", "--server-side", "-f", "-")
	return err
}

// setPorts sets the port of each Service that an object names as the address of a webhook.
func setPorts(value any, port int) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			setPorts(item, port)
		}
	case map[string]any:
		for name, item := range v {
			if service, ok := item.(map[string]any); ok && name == "service" && service["path"] != nil {
				service["port"] = port
			}
			setPorts(item, port)
		}
	}
}

// mount writes the certificate that Kueue has put into its Secret, as a kubelet does. It writes it once, because Kueue reads changes.
func (s *story) mount(ctx context.Context, dir string) error {
	const last = "tls.crt"
	if _, err := os.Stat(filepath.Join(dir, last)); err == nil {
		return nil
	}
	out, err := s.Kubectl(ctx, "get", "secret", "kueue-webhook-server-cert", "--namespace=kueue-system", "--output=json")
	if err != nil {
		return err
	}
	var secret corev1.Secret
	if err := json.Unmarshal([]byte(out), &secret); err != nil {
		return err
	}
	if len(secret.Data) == 0 {
		return errors.New("kueue has issued no certificate yet")
	}
	for name, data := range secret.Data {
		if name != last {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, last), secret.Data[last], 0o600))
}

// configureKueue applies the export, and a queue that prefers the nodes without the feature.
func (s *story) configureKueue(ctx context.Context) error {
	export := exec.CommandContext(ctx, filepath.Join(s.bin, "assay"), "export", "--for=kueue", "--kubeconfig="+s.Kubeconfig)
	export.Stderr = os.Stderr
	flavors, err := export.Output()
	if err != nil {
		return fmt.Errorf("assay export: %w", err)
	}
	fmt.Printf("\n$ assay export --for kueue\n%s\n", flavors)
	if _, err := s.KubectlInput(ctx, string(flavors), "apply", "-f", "-"); err != nil {
		return err
	}
	names, err := s.Kubectl(ctx, "get", "resourceflavors", `--output=jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
	if err != nil {
		return err
	}
	queue := "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: all}\nspec:\n  namespaceSelector: {}\n  resourceGroups:\n" +
		"  - coveredResources: [cpu]\n    flavors:\n"
	for _, name := range strings.Fields(names) { // m5 before m7, by name
		queue += "    - {name: " + name + ", resources: [{name: cpu, nominalQuota: 4}]}\n"
	}
	queue += "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: jobs, namespace: ml}\nspec: {clusterQueue: all}\n"
	if _, err := s.KubectlInput(ctx, queue, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "wait", "clusterqueue/all", "--for=condition=Active", "--timeout=2m")
	return err
}

// submit creates the jobs. The one that requires the feature has to be admitted to the other nodes than the one that does not.
func (s *story) submit(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "apply", "-f", s.file("jobs.yaml")); err != nil {
		return err
	}
	for job, want := range map[string][2]string{"training": {"m7", "amx"}, "report": {"m5", "plain"}} {
		err := cluster.WaitFor(ctx, "the pod of the job "+job+" is bound", func(ctx context.Context) error {
			return s.prints(ctx, []string{want[1]}, "get", "pods", "--namespace=ml", "--selector=job-name="+job, "--output=jsonpath={.items[*].spec.nodeName}")
		})
		if err != nil {
			return err
		}
		if err := s.prints(ctx, []string{"false " + want[0]}, "get", "job", job, "--namespace=ml",
			`--output=jsonpath={.spec.suspend} {.spec.template.spec.nodeSelector.node\.kubernetes\.io/instance-type}`); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"get", "workloads", "--namespace=ml", "--output=custom-columns=JOB:.metadata.ownerReferences[0].name,FLAVOR:.status.admission.podSetAssignments[0].flavors.cpu"},
		{"get", "pods", "--namespace=ml", "--output=custom-columns=POD:.metadata.name,NODE:.spec.nodeName"},
	} {
		if err := stage.Show(stage.Command(ctx, s.Cluster, args...)); err != nil {
			return err
		}
	}
	return nil
}
