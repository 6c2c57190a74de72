//go:build linux

package scheduling

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
	"github.com/assay-project/assay/webhook"
)

var update = flag.Bool("update", false, "write what is printed into docs/scheduling.md; read the diff")

// installation is all components of Assay for scheduling, run as users do: processes that are configured by flags only.
type installation struct {
	*cluster.Cluster
	api client.WithWatch
	// bin holds the programs, extender is the URL of the extender.
	bin, extender string
}

// install runs controller, webhook and extender in a cluster with three nodes, of which node-2 has AMX. The second scheduler is not
// running yet.
func install(t *testing.T) *installation {
	t.Helper()
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	in := &installation{Cluster: c, api: testkit.Client(t, c.User), bin: programs(t)}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml"}},
	} {
		in.create(t, o)
	}
	for node, flags := range map[string][]string{"node-1": {"AVX512F"}, "node-2": {"AVX512F", "AMXBF16"}, "node-3": {"AVX512F"}} {
		in.create(t, bigNode(node))
		in.create(t, nodeFeature(node, flags...))
	}
	// The permissions in the chart that the second scheduler has in addition to those of any scheduler.
	lease := metav1.ObjectMeta{Namespace: ownNamespace, Name: "assay-scheduler"}
	in.create(t, &rbacv1.Role{ObjectMeta: lease, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "list", "watch", "update", "patch"},
	}}})
	in.create(t, &rbacv1.RoleBinding{
		ObjectMeta: lease, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: lease.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"}},
	})
	runManager(t, c, in.bin, stage.Controller, "--enable-leader-election", "--feature-gates=FeatureScheduling=true")
	in.extender = runManager(t, c, in.bin, stage.Extender).Health
	testkit.WebhookObjects(t, in.api, ownNamespace, "assay-webhook-cert", webhook.ConfigurationName, webhook.SchedulingConfigurationName)
	runManager(t, c, in.bin, stage.Webhook, "--scheduling", "--extender-attached")
	rare := newPod("default", "rare", "", requires("FP64"))
	testkit.Eventually(t, "the API server asks the webhook, which knows the nodes", func(ctx context.Context) error {
		text, err := in.warnings(ctx, workload("Job", rare))
		if !strings.Contains(text, "0 of 3 nodes") {
			return fmt.Errorf("it warns of %q (%w)", text, err)
		}
		return nil
	})
	return in
}

// warnings returns the warnings for creating an object, in dry-run mode.
func (in *installation) warnings(ctx context.Context, o client.Object) (string, error) {
	heard := &warned{}
	config := rest.CopyConfig(in.RESTConfig())
	config.WarningHandler = heard
	api, err := client.New(config, client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		return "", err
	}
	err = api.Create(ctx, o, client.DryRunAll)
	return strings.Join(heard.texts, "\n"), err
}

// warned collects warnings of an API server.
type warned struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warned) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

func (in *installation) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := in.api.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// programs builds Assay's programs and returns their directory.
func programs(t testing.TB) string {
	t.Helper()
	testkit.Program(t, "assay")
	return filepath.Dir(testkit.Program(t, "assay-manager"))
}

// runManager runs a part of Assay in a cluster until the end of the test, from the programs in bin.
func runManager(t testing.TB, c *cluster.Cluster, bin, part string, args ...string) stage.Addresses {
	t.Helper()
	at, err := stage.Manager{Part: part, Path: filepath.Join(bin, "assay-manager"), Args: args}.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// runScheduler runs the second scheduler with the configuration that the command line prints for it.
func (in *installation) runScheduler(t *testing.T) {
	t.Helper()
	config, err := in.assay(t, "scheduler-config", "--for", "second", "--url", in.extender, "--ignorable=false")
	if err != nil {
		t.Fatal(err)
	}
	if err := in.RunScheduler(t.Context(), "second", []byte(config)); err != nil {
		t.Fatal(err)
	}
}

// assay runs the command line and returns its output.
func (in *installation) assay(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(in.bin, "assay"), args...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+in.Kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestInstallation(t *testing.T) {
	in := install(t)
	t.Run("BrokenAnnotationsOfWorkloadsAreRefusedWithTheirPath", in.workloads)
	t.Run("TheDoctorSaysWhatIsBroken", in.doctor)
}

// TestDocumentation runs the commands in docs/scheduling.md and compares their output.
func TestDocumentation(t *testing.T) {
	in := install(t)
	in.runScheduler(t)
	page, err := doctest.Read("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	runner := doctest.Runner{
		Dir: t.TempDir(), Kubectl: in.kubectl(t),
		Command: func(dir string, args []string, out io.Writer) error {
			return in.show(t, dir, filepath.Join(in.bin, "assay"), args, out)
		},
	}
	examples, problems := runner.Run(page)
	if *update {
		if err := page.Update(); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if examples < 6 {
		t.Errorf("only %d examples", examples)
	}
}

// kubectl runs kubectl. Since Events are written with a delay, it waits for those that the page shows.
func (in *installation) kubectl(t *testing.T) func(string, []string, io.Writer) error {
	awaited := map[string]string{"describe": "FailedScheduling", "events": "FeaturesLost"}
	return func(dir string, args []string, out io.Writer) error {
		if reason := awaited[args[0]]; reason != "" {
			testkit.Eventually(t, "there is an event "+reason, func(ctx context.Context) error {
				var list corev1.EventList
				if err := in.api.List(ctx, &list); err != nil {
					return err
				}
				for i := range list.Items {
					if list.Items[i].Reason == reason {
						return nil
					}
				}
				return fmt.Errorf("there is none among %d", len(list.Items))
			})
		}
		args = append(args, "--cache-dir="+filepath.Join(dir, ".cache"))
		if args[0] == "wait" {
			args = append(args, "--timeout=2m") // this may be a slow machine
		}
		return in.show(t, dir, in.Program(kube.Kubectl), args, out)
	}
}

// The age and the count of Events are not compared. Ages keep their width, since tables are aligned.
var (
	ages    = regexp.MustCompile(`(^|  )(\d+m)?\d+s( |$)`)
	repeats = regexp.MustCompile(` \(x\d+ over \w+\)`)
)

// show runs a program in a directory and returns all output, including errors.
func (in *installation) show(t *testing.T, dir, program string, args []string, out io.Writer) error {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "KUBECONFIG="+in.Kubeconfig)
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	err := cmd.Run()
	last := ""
	for line := range strings.Lines(repeats.ReplaceAllString(all.String(), "")) {
		line = ages.ReplaceAllStringFunc(strings.TrimRight(line, "\n"), func(age string) string {
			before := age[:len(age)-len(strings.TrimLeft(age, " "))]
			return fmt.Sprintf("%-*s", len(age), before+"2s")
		})
		if line = strings.TrimRight(line, " "); line != last {
			fmt.Fprintln(out, line)
		}
		last = line
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}
