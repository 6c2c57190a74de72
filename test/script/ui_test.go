//go:build linux

package script_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// pages is a running assay ui.
type pages struct{ base string }

// startUI runs assay ui until the test ends.
func startUI(t *testing.T, assay, kubeconfig string, args ...string) pages {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, assay, append([]string{"ui"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		cancel()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		t.Fatalf("assay ui prints no address: %v\n%s", err, messages.String())
	}
	t.Cleanup(stop)
	return pages{strings.TrimSpace(line)}
}

// get returns the text of a page.
func (p pages) get(ctx context.Context, page string) (string, error) {
	text, err := cluster.Get(ctx, p.base+page)
	return html.UnescapeString(text), err
}

// has reports which parts a page lacks, and which it has although it must not.
func (p pages) has(t *testing.T, page string, parts []string, not ...string) {
	t.Helper()
	text, err := p.get(t.Context(), page)
	if err != nil {
		t.Errorf("%s: %v", page, err)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", page, part, text)
		}
	}
	for _, part := range not {
		if strings.Contains(text, part) {
			t.Errorf("%s has %q:\n%s", page, part, text)
		}
	}
}

// reload reads the cluster again, and waits until that is done.
func (p pages) reload(t *testing.T) {
	t.Helper()
	response, err := http.PostForm(p.base+"reload", url.Values{"back": {"rules"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	testkit.Eventually(t, "the end of the reading", func(ctx context.Context) error {
		text, err := p.get(ctx, "playground")
		if err == nil && strings.Contains(text, "data-reading") {
			err = errors.New("it is reading")
		}
		return err
	})
}

// reader creates a user who may read the given resources.
func reader(t *testing.T, c *cluster.Cluster, api client.Client, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	user, err := c.NewUser(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rules {
		rules[i].Verbs = []string{"get", "list"}
	}
	testkit.Create(t, api, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	testkit.Create(t, api, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	return user.Kubeconfig
}

func published(t *testing.T, api client.Client, namespace, node string) {
	t.Helper()
	testkit.Node(t, api, node)
	testkit.Create(t, api, &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			"cpu.model": {Elements: map[string]string{"vendor_id": "Intel"}},
		}}},
	})
}

// TestUIWithoutRights: assay ui ended for a user who may not read one of the kinds, and said on the terminal only what else is unknown. Each
// page names the right that is missing, and shows neither an empty list nor numbers that are not known.
func TestUIWithoutRights(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, api)
	published(t, api, namespace, "n1")
	published(t, api, namespace, "n2")
	testkit.Create(t, api, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "rules", Namespace: namespace},
		StringData: map[string]string{"r": `[{name: secret, labels: {example.com/secret: "true"}, matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: Exists}}}]}]`},
	})
	testkit.Create(t, api, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "from-secret"},
		Spec:       nfdv1alpha1.NodeFeatureRuleSpec{RulesFrom: []nfdv1alpha1.RulesSource{{SecretKeyRef: &nfdv1alpha1.KeyRef{Name: "rules", Key: "r"}}}},
	})
	testkit.Create(t, api, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"},
		Spec:       nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "all", Labels: map[string]string{"example.com/all": "true"}}}},
	})
	nodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}}
	features := rbacv1.PolicyRule{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeatures"}}
	objects := rbacv1.PolicyRule{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeaturerules"}}
	assay := testkit.Program(t, "assay")
	lists := func(user, resource, group string) string {
		return fmt.Sprintf("User %q cannot list resource %q in API group %q", user, resource, group)
	}

	const most = "ui-most"
	p := startUI(t, assay, reader(t, c, api, most, nodes, features, objects), "--assay-namespace", namespace)
	settings, templates := lists(most, "deployments", "apps"), lists(most, "nodefeatureruletemplates", "assay.dev")
	p.has(t, "fleet?by=nodes", []string{"n1", "n2", settings, lists(most, "daemonsets", "apps"), lists(most, "resourceslices", "resource.k8s.io"), templates})
	p.has(t, "rules", []string{"from-secret", `cannot get resource "secrets"`, `cannot get resource "configmaps"`}, "No rules found")
	p.has(t, "rule?name=from-secret", []string{"Not evaluated here", `cannot get resource "secrets"`}, "Matches 0 of 2")
	p.has(t, "rule?name=plain", []string{"Matches 2 of 2"})
	p.has(t, "pods", []string{lists(most, "pods", "")}, "No pod waits")
	p.has(t, "node?name=n1", []string{"Events are not known: ", lists(most, "events", "")}, "No Events found")
	for _, kind := range []string{"nodefeaturerequests", "nodefeatureschedulingpolicies", "nodebaselines", "nodeshapes", "nodefeaturesets"} {
		p.has(t, "objects?kind="+kind, []string{"Not known: ", lists(most, kind, "assay.dev")}, "There are none")
	}
	p.has(t, "objects?kind=nodefeaturegroups", []string{lists(most, "nodefeaturegroups", nfdv1alpha1.GroupName)}, "There are none")

	const noFeatures = "ui-no-features"
	p = startUI(t, assay, reader(t, c, api, noFeatures, nodes, objects), "--assay-namespace", namespace)
	why := lists(noFeatures, "nodefeatures", nfdv1alpha1.GroupName)
	p.has(t, "fleet?by=nodes", []string{"n1", why}, "without NodeFeatures")
	p.has(t, "fleet?by=nodes&format=csv", []string{"node,", "n1"}, "missing", "withheld", "features-age")
	p.has(t, "rules", []string{"plain", why})
	p.has(t, "rule?name=plain", []string{"Not evaluated here", why}, "Matches 0 of 2", "No node matches")
	p.has(t, "node?name=n1", []string{"No rule is evaluated", why}, "No NodeFeatures found for this node")
	p.has(t, "pod?name=any", []string{"the features of nodes are not known", why})
	p.has(t, "playground?node=n1", []string{"Not evaluated: the features of nodes are not known.", why})
	p.has(t, "compare?a=n1&b=n2", []string{"Nothing is compared", why})

	const noNodes = "ui-no-nodes"
	p = startUI(t, assay, reader(t, c, api, noNodes, features, objects), "--assay-namespace", namespace)
	p.has(t, "fleet?by=nodes", []string{"n1", "The Nodes are not known: ", lists(noNodes, "nodes", "")})
	p.has(t, "fleet?by=nodes&format=csv", []string{"node,", "n1"}, "ready")

	const noRules = "ui-no-rules"
	p = startUI(t, assay, reader(t, c, api, noRules, nodes, features), "--assay-namespace", namespace)
	why = lists(noRules, "nodefeaturerules", nfdv1alpha1.GroupName)
	p.has(t, "rules", []string{"No rule can be shown.", why}, "No rules found")
	p.has(t, "node?name=n1", []string{"No rule is evaluated: the rules are not known.", why}, "No rules found")
}

// TestUIOutlivesTheAPIServer: while the API server is away, pages say so and show the state before; then they show the new one.
func TestUIOutlivesTheAPIServer(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
	api := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, api)
	published(t, api, namespace, "before")
	p := startUI(t, testkit.Program(t, "assay"), c.Kubeconfig, "--assay-namespace", namespace)
	p.has(t, "node?name=before", []string{"vendor_id", "No Events found"}, "Cannot read again")
	if err := c.Kill(kube.APIServer); err != nil {
		t.Fatal(err)
	}
	p.reload(t)
	p.has(t, "node?name=before", []string{"Cannot read again: cannot reach the API server", "vendor_id", "Events are not known: cannot reach the API server"})
	p.has(t, "pods", []string{"Cannot read again: cannot reach the API server", "No pod waits"})
	if err := c.Restart(t.Context(), kube.APIServer); err != nil {
		t.Fatal(err)
	}
	testkit.Node(t, api, "after")
	p.reload(t)
	p.has(t, "fleet?by=nodes", []string{"before", "after"}, "Cannot read again")
}
