//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/hack/kustomize"
	"github.com/assay-project/assay/test/bench"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

const (
	namespace = stage.Namespace
	// firstValue is the initial value of ownFeature.
	firstValue = "0"
	// valueLabel is the label that shows the value of ownFeature, and allLabel that of the rule that matches all nodes.
	valueLabel = nfdv1alpha1.FeatureLabelNamespace + "/scale-value"
	allLabel   = nfdv1alpha1.FeatureLabelNamespace + "/scale-all"
	// keptLabel is a label that nodes have unless the value begins with lostValue.
	keptLabel = nfdv1alpha1.FeatureLabelNamespace + "/scale-kept"
	lostValue = "lost-"
)

// scale is a control plane with a fleet.
type scale struct {
	*cluster.Cluster
	options
	client   client.WithWatch
	observer *observer
	fleet    *fleet.Fleet
	nodes    []fleet.Node
	created  int       // nodes created so far, to number them
	last     *snapshot // at the end of the latest phase
	result   *result
}

// measure runs all phases on a control plane with Assay's CRDs and without Nodes. With an error, the result has the phases before it.
func measure(ctx context.Context, c *cluster.Cluster, o options) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &scale{Cluster: c, options: o, result: &result{Nodes: o.nodes, Shared: o.shared, Slices: o.slices}}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { s.fleet.End(s.nodes) }()
	phases := s.phases
	if s.baselines {
		phases = s.baselinePhases
	}
	for _, p := range phases() {
		if err := s.phase(ctx, p); err != nil {
			return s.result, fmt.Errorf("phase %q: %w\n%s", p.name, err, c.Log(stage.Controller))
		}
	}
	return s.result, s.countShapes(ctx)
}

// countShapes adds the number and the size of NodeShapes to the result.
func (s *scale) countShapes(ctx context.Context) error {
	var list assayv1alpha1.NodeShapeList
	if err := s.client.List(ctx, &list); err != nil {
		return err
	}
	s.result.Shapes = len(list.Items)
	for i := range list.Items {
		text, err := json.Marshal(&list.Items[i])
		if err != nil {
			return err
		}
		s.result.ShapeBytes = max(s.result.ShapeBytes, len(text))
	}
	return nil
}

// prepare creates what exists before the first worker starts: Nodes and rules.
func (s *scale) prepare(ctx context.Context) error {
	var err error
	// The webhook warns about the rule that matches no node.
	if s.client, err = stage.Client(s.User, rest.NoWarnings{}); err != nil {
		return err
	}
	hosts, err := newHosts(s.shapes)
	if err != nil {
		return err
	}
	content := hosts.content
	if s.baselines {
		content = equal(content)
	}
	s.fleet = &fleet.Fleet{Namespace: namespace, Content: content, FirstValue: firstValue, Share: s.shared, Parallel: s.parallel}
	if s.fleet.Config, err = publish.FromKubeconfig(s.Kubeconfig); err != nil {
		return err
	}
	objects, err := installation(s.rules)
	if err != nil {
		return err
	}
	if s.shared {
		objects = append(objects, marker(namespace))
	}
	if err := stage.CreateAll(ctx, s.client, objects...); err != nil {
		return err
	}
	if err := s.count(ctx); err != nil {
		return err
	}
	if s.nodes, err = s.createNodes(ctx, s.options.nodes); err != nil {
		return err
	}
	s.observer = observe(ctx, s.client)
	return nil
}

// installation returns what the chart installs, without programs, and rules: some of the benchmarks, and three about ownFeature.
func installation(ruleCount int) ([]client.Object, error) {
	installed, err := kustomize.Objects("Namespace", "ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ResourceQuota",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, o := range installed {
		objects = append(objects, o)
	}
	objects = append(objects, rule("scale-value", valueLabel, "@"+ownFeature+".value", nfdv1alpha1.MatchExists), ownRule(), keptRule())
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := bench.Decode(fmt.Sprintf("rules-%d", ruleCount), &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, nil
}

// count makes the quotas valid, as the controllers of Kubernetes do, which do not run: until their objects are counted, the API server
// refuses new ones.
func (s *scale) count(ctx context.Context) error {
	var quotas corev1.ResourceQuotaList
	if err := s.client.List(ctx, &quotas, client.InNamespace(namespace)); err != nil {
		return err
	}
	for _, quota := range quotas.Items {
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{}}
		for name := range quota.Spec.Hard {
			quota.Status.Used[name] = resource.MustParse("0")
		}
		if err := s.client.Status().Update(ctx, &quota); err != nil {
			return err
		}
	}
	return nil
}

// marker returns the object with which a controller announces support for feature sets.
func marker(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: assayv1alpha1.FeatureSetMarker, Annotations: featureset.Announcement(),
	}}
}

// rule returns a rule that creates a label if ownFeature satisfies the operator.
func rule(name, label, value string, op nfdv1alpha1.MatchOp) *nfdv1alpha1.NodeFeatureRule {
	return &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: name, Labels: map[string]string{label: value},
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature: ownFeature, MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"value": {Op: op}},
			}},
		}}},
	}
}

// ownRule returns a rule that creates labels with values that no two nodes have in common.
func ownRule() *nfdv1alpha1.NodeFeatureRule {
	r := rule("scale-own", nfdv1alpha1.FeatureLabelNamespace+"/scale-part", "@"+ownFeature+"."+ownElement(0), nfdv1alpha1.MatchExists)
	for i := range ownElements {
		r.Spec.Rules[0].Labels[fmt.Sprintf("%s/scale-%s", nfdv1alpha1.FeatureLabelNamespace, ownElement(i))] = "@" + ownFeature + "." + ownElement(i)
	}
	return r
}

// keptRule returns the rule that gives keptLabel.
func keptRule() *nfdv1alpha1.NodeFeatureRule {
	r := rule("scale-kept", keptLabel, "true", nfdv1alpha1.MatchInRegexp)
	(*r.Spec.Rules[0].MatchFeatures[0].MatchExpressions)["value"].Value = nfdv1alpha1.MatchValue{"^[^" + lostValue[:1] + "]"}
	return r
}

// instanceType returns the instance type of a node, of so many.
func instanceType(number, types int) string { return fmt.Sprintf("type-%d", number%types) }

// createNodes creates Nodes with new names, and tokens of their workers.
func (s *scale) createNodes(ctx context.Context, count int) ([]fleet.Node, error) {
	progress := s.counter("create Nodes", count)
	nodes := make([]fleet.Node, count)
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", s.created)}}
		if s.shapes > 0 {
			n.Labels = map[string]string{corev1.LabelInstanceTypeStable: instanceType(s.created, s.shapes)}
		}
		if s.baselines {
			maps.Copy(n.Labels, placeOf(s.created, n.Name)) // which have shapes
		}
		if err := s.client.Create(ctx, n); err != nil {
			return nil, err
		}
		token, err := s.token(ctx, kustomize.Worker, n)
		if err != nil {
			return nil, fmt.Errorf("create a token for the worker of %s: %w", n.Name, err)
		}
		nodes[i] = fleet.Node{Number: s.created, Name: n.Name, UID: string(n.UID), Token: token}
		if s.slices {
			if err := s.createSlice(ctx, nodes[i]); err != nil {
				return nil, fmt.Errorf("create the ResourceSlice of %s: %w", n.Name, err)
			}
		}
		s.created++
		progress(i + 1)
	}
	return nodes, nil
}

// token returns a token of a ServiceAccount; that of a worker is bound to a Node. Those of a kubelet are bound to a pod, and name its
// Node too.
func (s *scale) token(ctx context.Context, account string, bound *corev1.Node) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))}}
	if bound != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: bound.Name, UID: bound.UID}
	}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	err := s.client.SubResource("token").Create(ctx, owner, request)
	return request.Status.Token, err
}

// tokenLife is more than any run takes: the programs of the harness do not renew their tokens.
const tokenLife = 24 * time.Hour

// counter returns a function that prints progress from time to time. It is safe for concurrent use.
func (s *scale) counter(what string, of int) func(done int) {
	const often = 5 * time.Second
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	return func(done int) {
		now, before := time.Now().UnixNano(), last.Load()
		if now-before > int64(often) && last.CompareAndSwap(before, now) {
			_, _ = fmt.Fprintf(s.progress, "%s: %d of %d\n", what, done, of)
		}
	}
}

// startController starts the controller.
func (s *scale) startController(ctx context.Context) error {
	return s.start(ctx, stage.Controller, kustomize.Controller)
}

// startServers starts the webhook and the extender, which is not part of a default installation.
func (s *scale) startServers(ctx context.Context) error {
	if err := s.start(ctx, stage.Webhook, kustomize.Webhook, "--controller-service-account="+kustomize.Controller); err != nil {
		return err
	}
	return s.start(ctx, stage.Extender, "")
}

// start starts a part of assay-manager with the permissions of a ServiceAccount, to which the policies apply; empty: of the administrator.
func (s *scale) start(ctx context.Context, part, account string, args ...string) error {
	m := stage.Manager{Part: part, Path: s.manager, Args: args}
	if account != "" {
		var err error
		if m.Kubeconfig, err = s.kubeconfig(ctx, account); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", account, err)
		}
	}
	_, err := m.Start(ctx, s.Cluster)
	return err
}

// kubeconfig writes a kubeconfig with a token of a ServiceAccount, and returns its path.
func (s *scale) kubeconfig(ctx context.Context, account string) (string, error) {
	token, err := s.token(ctx, account, nil)
	if err != nil {
		return "", err
	}
	admin := s.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters[account] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[account] = &clientcmdapi.Context{Cluster: account, AuthInfo: account}
	config.CurrentContext = account
	path := filepath.Join(filepath.Dir(s.Kubeconfig), account+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
