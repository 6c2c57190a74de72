//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// extenderRole returns the permissions of the extender: it writes nothing, and reads Pods only to answer requests for explanations.
func extenderRole(name string) *rbacv1.ClusterRole {
	watch := []string{"list", "watch"}
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces"}, Verbs: watch},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeatures", "nodefeaturerules"}, Verbs: watch},
		{
			APIGroups: []string{assayv1alpha1.GroupName}, Verbs: watch,
			Resources: []string{"nodefeaturerequests", "nodefeatureschedulingpolicies", "nodefeatureruletemplates"},
		},
		definitionRule,
	}}
}

// Permissions of all components that assemble rules: to check whether the CRD is Assay's, and to read referenced objects in Assay's
// own namespace.
var (
	definitionRule = rbacv1.PolicyRule{
		APIGroups: []string{definition.Kind.Group}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"},
		ResourceNames: []string{definition.Rules, definition.Templates, definition.Features, definition.Sets, definition.Requests},
	}
	referencesRule = rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"get", "list", "watch"},
	}
)

// leasesRule is the additional permission for --publisher-leases, in Assay's own namespace.
var leasesRule = rbacv1.PolicyRule{
	APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"list", "watch"},
}

// asking is an extender in its own process, with exactly the permissions that it needs.
type asking struct {
	cluster       *cluster.Cluster
	name, address string
	ended         bool // stopped by the test
}

// startExtender starts an extender and waits until it is ready. through is the address of the API server, or "" for its own
// address.
func startExtender(t *testing.T, c *cluster.Cluster, through string, env []string, args ...string) *asking {
	t.Helper()
	return startExtenderIn(t, c, testkit.Namespace(t, testkit.Client(t, c.User)), through, env, args...)
}

// startExtenderIn is like startExtender, with the given own namespace.
func startExtenderIn(t *testing.T, c *cluster.Cluster, namespace, through string, env []string, args ...string) *asking {
	t.Helper()
	e := &asking{cluster: c, name: "extender-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), address: testkit.FreeAddress(t)}
	k := testkit.Client(t, c.User)
	user, err := c.NewUser(e.name)
	if err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: e.name}}
	role := extenderRole(e.name)
	testkit.Create(t, k, role)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   subjects,
	})
	own := metav1.ObjectMeta{Namespace: namespace, Name: e.name}
	testkit.Create(t, k, &rbacv1.Role{ObjectMeta: own, Rules: []rbacv1.PolicyRule{referencesRule, leasesRule}})
	testkit.Create(t, k, &rbacv1.RoleBinding{
		ObjectMeta: own, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: e.name},
	})
	kubeconfig := user.Kubeconfig
	if through != "" {
		kubeconfig = redirected(t, kubeconfig, c.RESTConfig().Host, "https://"+through)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context(), cluster.Program{
		Name: e.name, Path: program, Env: append([]string{asManager + "=1"}, env...),
		Args: append([]string{
			"extender", "--kubeconfig=" + kubeconfig, "--address=" + e.address, "--namespace=" + namespace, "--shutdown-delay=0s",
		}, args...),
		Ready: func(ctx context.Context) error {
			_, err := testkit.Get(ctx, "http://"+e.address+"/readyz")
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Log(e.name))
		}
		if err := c.Terminate(context.WithoutCancel(t.Context()), e.name); err != nil && !e.ended {
			t.Errorf("it does not end when asked to: %v", err)
		}
	})
	return e
}

// redirected copies a kubeconfig and changes the address of the server.
func redirected(t *testing.T, kubeconfig, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.ReplaceAll(data, []byte(from), []byte(to))
	if bytes.Equal(data, out) {
		t.Fatalf("%s does not name %s", kubeconfig, from)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// filter returns which of the nodes meet the requirement in a pod's annotation.
func (e *asking) filter(required string, names ...string) (got extenderv1.ExtenderFilterResult, err error) {
	return e.ask(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{
		assayv1alpha1.RequiredFeaturesAnnotation: required,
	}}}, names...)
}

// ask returns which of the nodes the pod may run on.
func (e *asking) ask(pod *corev1.Pod, names ...string) (got extenderv1.ExtenderFilterResult, err error) {
	question, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	if err != nil {
		return got, err
	}
	resp, err := http.Post("http://"+e.address+"/filter", "application/json", bytes.NewReader(question))
	if err != nil {
		return got, err
	}
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close())
	if err == nil && got.NodeNames == nil {
		err = errors.New("NodeNames is null")
	}
	return got, err
}

func TestExtenderAnswersWithTheRightsItNeeds(t *testing.T) {
	c := testkit.Cluster(t)
	testkit.Node(t, testkit.Client(t, c.User), "extender-node")
	e := startExtender(t, c, "", nil)
	got, err := e.filter(`conditions: [{op: eq, args: {values: ["{node.name}", extender-node]}}]`, "extender-node", "stranger")
	if err != nil || len(*got.NodeNames) != 1 || (*got.NodeNames)[0] != "extender-node" || got.Error != "" {
		t.Errorf("got %+v (%v)", got, err)
	}
	text, err := testkit.Get(t.Context(), "http://"+e.address+"/metrics")
	for _, want := range []string{"assay_extender_nodes 1\n", "\ngo_gc_heap_live_bytes ", "\ngo_goroutines ", "\nprocess_open_fds "} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("metrics without %q: %v\n%s", want, err, text)
		}
	}
}

// With Leases, publishers report the age of their features; a policy defines the maximum age.
func TestExtenderRejectsFeaturesWhoseLeaseIsOld(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	own := testkit.Namespace(t, k)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{assayv1alpha1.SchedulingLabel: assayv1alpha1.SchedulingLabelEnabled},
	}}
	testkit.Create(t, k, ns)
	testkit.Node(t, k, "leased")
	testkit.Node(t, k, "without-lease")
	testkit.Create(t, k, &assayv1alpha1.NodeFeatureSchedulingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "fresh"},
		Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{}, StaleAfter: &metav1.Duration{Duration: time.Hour}, OnStale: assayv1alpha1.StaleReject,
		},
	})
	renewed := func(ago time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(-ago)} }
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "leased"}, Spec: coordinationv1.LeaseSpec{RenewTime: renewed(2 * time.Hour)},
	}
	testkit.Create(t, k, lease)
	e := startExtenderIn(t, c, own, "", nil, "--publisher-leases")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "p"}}
	becomes := func(what, want string) {
		t.Helper()
		testkit.Eventually(t, what, func(context.Context) error {
			got, err := e.ask(pod, "leased", "without-lease")
			if err != nil || got.FailedAndUnresolvableNodes["leased"] != want || got.FailedAndUnresolvableNodes["without-lease"] != "" {
				return fmt.Errorf("got %+v (%w)", got, err)
			}
			return nil
		})
	}
	const stale = "node feature requirement not met: its features are stale"
	becomes("an old Lease counts", stale)
	lease.Spec.RenewTime = renewed(0)
	if err := k.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	becomes("a renewed Lease counts", "")
	lease.Spec.RenewTime = renewed(2 * time.Hour)
	if err := k.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	becomes("it is old again", stale)
	if err := k.Delete(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	becomes("without a Lease the Node counts", "")
}

// A replica that is shutting down is not ready, but continues to answer until all schedulers have noticed.
func TestExtenderThatEndsAnswersForAWhile(t *testing.T) {
	c := testkit.Cluster(t)
	testkit.Node(t, testkit.Client(t, c.User), "ending-node")
	e := startExtender(t, c, "", nil, "--shutdown-delay=8s")
	ended := make(chan error, 1)
	e.ended = true
	go func() { ended <- c.Terminate(context.WithoutCancel(t.Context()), e.name) }()
	testkit.Eventually(t, "it is not ready", func(ctx context.Context) error {
		if _, err := testkit.Get(ctx, "http://"+e.address+"/readyz"); err == nil || !strings.Contains(err.Error(), "shutting down") {
			return fmt.Errorf("it says: %w", err)
		}
		return nil
	})
	got, err := e.filter(`conditions: [{op: eq, args: {values: ["{node.name}", ending-node]}}]`, "ending-node", "stranger")
	if err != nil || len(*got.NodeNames) != 1 || got.Error != "" {
		t.Errorf("got %+v (%v)", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// While the controller keeps the labels of a node whose worker is being replaced, the extender must keep the node's features.
func TestExtenderKnowsFeaturesAsLongAsLabelsStay(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	for grace, want := range map[string]int{"10m": 1, "0s": 0} {
		t.Run(grace, func(t *testing.T) {
			own := testkit.Namespace(t, k)
			testkit.Node(t, k, "replaced")
			testkit.Node(t, k, "witness")
			e := startExtenderIn(t, c, own, "", nil, "--removal-grace-period="+grace)
			has := func(flag, node string, want int) {
				t.Helper()
				testkit.Eventually(t, fmt.Sprintf("%s is known: %d", node, want), func(context.Context) error {
					got, err := e.filter(fmt.Sprintf("matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]", flag), node)
					if err != nil || len(*got.NodeNames) != want {
						return fmt.Errorf("got %+v (%w)", got, err)
					}
					return nil
				})
			}
			feature := flagsOf(own, "replaced", "sealed")
			testkit.Create(t, k, feature)
			has("sealed", "replaced", 1)
			if err := k.Delete(t.Context(), feature); err != nil {
				t.Fatal(err)
			}
			testkit.Create(t, k, flagsOf(own, "witness", "later")) // when this object is known, the deletion is known too
			has("later", "witness", 1)
			has("sealed", "replaced", want)
		})
	}
}

// A flag for client authentication must not be accepted and then ignored.
func TestExtenderRefusesFlagsThatCannotWork(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"authority without TLS": {[]string{"--client-ca=" + missing}, "require --tls-cert"},
		"token without TLS":     {[]string{"--token-file=" + missing}, "require --tls-cert"},
		"review without TLS":    {[]string{"--token-review"}, "require --tls-cert"},
		"certificate, no key":   {[]string{"--tls-cert=" + missing}, "--tls-cert and --tls-key must be set together"},
		"two kinds of tokens":   {[]string{"--tls-cert=c", "--tls-key=k", "--token-review", "--token-file=" + missing}, "are mutually exclusive"},
		"no authority there":    {[]string{"--tls-cert=c", "--tls-key=k", "--client-ca=" + missing}, "--client-ca: open " + missing},
	} {
		t.Run(name, func(t *testing.T) {
			f := &extenderFlags{}
			flags := pflag.NewFlagSet("extender", pflag.ContinueOnError)
			f.register(flags)
			if err := flags.Parse(test.flags); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.serving(nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
