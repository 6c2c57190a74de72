//go:build linux

package script_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/certs"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/rights"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/webhook"
)

// doctored is an installation as the chart makes it. Nothing but the webhook runs: the test writes what kubelets and controllers
// would report.
type doctored struct {
	c                  *cluster.Cluster
	api                client.WithWatch
	assay              string
	namespace, release string
	bundle             []byte // of the authority that signed the webhook's certificate
	url                string // of the webhook
	controller, hook   *appsv1.Deployment
	workers            *appsv1.DaemonSet
	lease              *coordinationv1.Lease
	rights             client.Object // of all ServiceAccounts
	first              string        // line of the doctor's output
}

// TestDoctor breaks an installation in one way after the other. The doctor names each, and nothing else.
func TestDoctor(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	assay := testkit.Program(t, "assay")
	for name, test := range map[string]struct {
		namespace, release string
		damage             func(*testing.T, *doctored)
		code               int
		want               string // a line of the output, the first unless all is well; all other findings are ok
		also               string // the beginning of a consequence that is reported too
	}{
		"Nothing is wrong": {want: "ok   the API server calls the webhook, which rejected a dry run of an invalid rule, and warned about one without outputs"},
		"The programs are not of the chart": {
			damage: func(t *testing.T, d *doctored) {
				d.delete(t, d.controller)
				d.delete(t, d.hook)
				d.delete(t, d.workers)
			},
			code: 1, want: "WARN 2 of 2 Nodes have features from programs that are not of the chart: no Deployment or DaemonSet in any namespace has the label app.kubernetes.io/part-of=assay",
		},
		"Another publisher's object has the name of a Node": {
			damage: func(t *testing.T, d *doctored) {
				f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "n1"}}
				d.delete(t, f)
				d.create(t, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
					Namespace: metav1.NamespaceDefault, Name: "n1", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"},
				}})
			},
			code: 1, want: "BAD  1 Node: n1: the worker is ready and publishes no features; those that the Node has are of other publishers",
		},
		"The configuration of the workers is invalid": {
			damage: func(t *testing.T, d *doctored) {
				d.configure(t, "core:\n  sleepInterval: 60\n")
			},
			code: 1, want: "BAD  ConfigMap assay-system/assay-worker: nfd-worker.conf:2:18: core.sleepInterval: invalid duration \"60\": use for example 90s, 10m or 1h: " +
				"running programs keep the previous configuration, and do not start again with this one",
		},
		"The configuration of the workers is valid": {
			damage: func(t *testing.T, d *doctored) { d.configure(t, "core: {klog: {}, unknown: 1}\n") },
			want:   "ok   the configurations in the ConfigMaps assay-system/assay-worker are valid",
		},
		"The controller is scaled to 0": {
			damage: func(t *testing.T, d *doctored) {
				d.controller.Spec.Replicas = ptr.To[int32](0)
				d.update(t, d.controller)
			},
			code: 1, want: "BAD  Deployment assay-system/assay-controller is scaled to 0 replicas: labels are not updated",
		},
		"The holder of the Lease is dead": {
			damage: func(t *testing.T, d *doctored) {
				d.lease.Spec.LeaseDurationSeconds = ptr.To[int32](15)
				d.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
				d.update(t, d.lease)
			},
			code: 1, want: "BAD  Lease assay-system/nfd-master.nfd.kubernetes.io is held by assay-controller-0, which has not renewed it for 1h0m",
		},
		"No replica holds the Lease of the instance": {
			damage: func(t *testing.T, d *doctored) {
				d.controller.Spec.Template.Spec.Containers[0].Args = []string{"controller", "--instance=second"}
				d.update(t, d.controller)
			},
			code: 1, want: "BAD  no replica of the controller holds Lease assay-system/second.nfd-master.nfd.kubernetes.io: labels are not updated",
		},
		"NFD holds the Lease": {
			damage: func(t *testing.T, d *doctored) {
				d.lease.Spec.HolderIdentity = ptr.To("nfd-master-0_x")
				d.update(t, d.lease)
			},
			code: 1, want: "BAD  Lease assay-system/nfd-master.nfd.kubernetes.io is held by nfd-master-0, which is not a pod of Deployment assay-controller",
		},
		"The webhook configuration is missing": {
			damage: func(t *testing.T, d *doctored) { d.delete(t, d.configuration(d.bundle)) },
			code:   1, want: "BAD  no ValidatingWebhookConfiguration has the webhook rules.assay.dev: the API server does not call Deployment assay-system/assay-webhook",
		},
		"The webhook configuration has the CA of another authority": {
			damage: func(t *testing.T, d *doctored) {
				_, other := d.certificate(t, "another")
				d.delete(t, d.configuration(d.bundle))
				d.create(t, d.configuration(other))
			},
			code: 1, want: "BAD  the CA bundle of ValidatingWebhookConfiguration assay does not verify the webhook's certificate in Secret assay-system/assay-webhook-cert: x509",
		},
		"The early review is missing": {
			damage: func(t *testing.T, d *doctored) { d.delete(t, d.early(d.bundle)) },
			code:   1, want: "WARN no MutatingWebhookConfiguration has the webhook early.rules.assay.dev: of an invalid object users may see only the first error",
		},
		"The early review has the CA of another authority": {
			damage: func(t *testing.T, d *doctored) {
				_, other := d.certificate(t, "another")
				d.delete(t, d.early(d.bundle))
				d.create(t, d.early(other))
			},
			code: 1, want: "BAD  the CA bundle of MutatingWebhookConfiguration assay does not verify the webhook's certificate in Secret assay-system/assay-webhook-cert: x509",
		},
		"The webhook does not answer": {
			damage: func(t *testing.T, d *doctored) {
				nowhere := webhook.ConfigurationOptions{URL: "https://" + testkit.FreeAddress(t), CABundle: d.bundle}
				for _, config := range []client.Object{webhook.Configuration(nowhere), webhook.EarlyConfiguration(nowhere)} {
					d.delete(t, config)
					d.create(t, config)
				}
			},
			code: 1, want: "BAD  the webhook of ValidatingWebhookConfiguration assay does not answer: a dry run of an invalid rule was accepted",
		},
		"The webhook answers only the early review": {
			damage: func(t *testing.T, d *doctored) {
				d.delete(t, d.configuration(d.bundle))
				d.create(t, webhook.Configuration(webhook.ConfigurationOptions{URL: "https://" + testkit.FreeAddress(t), CABundle: d.bundle}))
			},
			code: 1, want: "BAD  the webhook of ValidatingWebhookConfiguration assay does not answer: a dry run of a rule without outputs was accepted without its warning",
		},
		"No worker runs on a Node": {
			damage: func(t *testing.T, d *doctored) { d.deletePod(t, "assay-worker-n2") },
			code:   1, want: "BAD  1 Node: n2: no pod of DaemonSet assay-system/assay-worker; the NodeFeature of its worker is still there and no longer updated",
		},
		"Nodes run no worker by design": {
			damage: func(t *testing.T, d *doctored) {
				for name, labels := range map[string]map[string]string{
					"windows-1": {"kubernetes.io/os": "windows"},
					"fargate-1": {"kubernetes.io/os": "linux", "eks.amazonaws.com/compute-type": "fargate"},
					"virtual-1": {"kubernetes.io/os": "linux", "type": "virtual-kubelet"},
				} {
					n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
					d.create(t, n)
				}
			},
			code: 0, want: "ok   3 Nodes without a worker by design: Windows, AWS Fargate or a virtual kubelet",
		},
		"A Node is tainted": {
			damage: func(t *testing.T, d *doctored) {
				d.deletePod(t, "assay-worker-n2")
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
				d.get(t, n)
				n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
				d.update(t, n)
			},
			code: 1, want: "BAD  1 Node: n2: no pod of DaemonSet assay-system/assay-worker, which does not tolerate the taint dedicated=db:NoSchedule",
		},
		"A feature set stays missing": {
			damage: func(t *testing.T, d *doctored) {
				f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "n1"}}
				d.get(t, f)
				f.Annotations = map[string]string{assayv1alpha1.MissingFeatureSetsAnnotation: "kernel-config-v1-0"}
				d.update(t, f)
			},
			code: 1, want: "BAD  1 Node: n1: NodeFeatureSets that the NodeFeature names are missing, and its worker has not created them again",
		},
		"A worker is down and its NodeFeature lives on": {
			damage: func(t *testing.T, d *doctored) {
				d.setPod(t, "assay-worker-n1", corev1.ContainerStatus{
					Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				})
			},
			code: 1, want: "BAD  1 Node: n1: the worker is down: container c is waiting: CrashLoopBackOff; the NodeFeature of its worker is still there",
		},
		"The controller may not write Nodes": {
			damage: func(t *testing.T, d *doctored) {
				d.unlabeled(t) // as a consequence, which is not reported
				d.allow(t, func(r *rights.Right) bool { return r.Resource != "nodes/status" })
			},
			code: 1, want: "BAD  ServiceAccount assay-system/assay-manager may not patch nodes/status: labels are not updated",
		},
		"The webhook may not write its configuration": {
			damage: func(t *testing.T, d *doctored) {
				d.allow(t, func(r *rights.Right) bool { return r.Group != "admissionregistration.k8s.io" })
			},
			code: 1, want: "BAD  ServiceAccount assay-system/assay-webhook may not patch mutatingwebhookconfigurations.admissionregistration.k8s.io assay, " +
				"patch validatingwebhookconfigurations.admissionregistration.k8s.io assay: the API server does not call it, or trusts an old certificate",
		},
		"An admission policy is missing": {
			damage: func(t *testing.T, d *doctored) {
				d.delete(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "assay-node-writes"}})
			},
			code: 1, want: "WARN admission policies assay-node-writes do not exist: the controller's token can write any label, taint and condition of Nodes",
		},
		"Another namespace than that in the admission policies": {
			damage: func(t *testing.T, d *doctored) {
				p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "assay-node-bound-publishing"}}
				d.get(t, p)
				for i := range p.Spec.Variables {
					p.Spec.Variables[i].Expression = strings.ReplaceAll(p.Spec.Variables[i].Expression, ":"+d.namespace+":", ":before-the-overlay:")
				}
				d.update(t, p)
			},
			code: 1, want: "BAD  admission policy assay-node-bound-publishing names system:serviceaccount:before-the-overlay:assay-manager, " +
				"system:serviceaccount:before-the-overlay:assay-worker, and not system:serviceaccount:assay-system:assay-worker of the worker: " +
				"the token of one worker can publish features of all Nodes",
		},
		"An admission policy is not bound": {
			damage: func(t *testing.T, d *doctored) {
				d.delete(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "assay-node-bound-sets"}})
			},
			code: 1, want: "WARN admission policies assay-node-bound-sets have no ValidatingAdmissionPolicyBinding: the token of one worker can fill etcd",
		},
		"An admission policy only audits": {
			damage: func(t *testing.T, d *doctored) {
				b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "assay-node-bound-sets"}}
				d.get(t, b)
				b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
				d.update(t, b)
			},
			code: 1, want: "WARN admission policies assay-node-bound-sets are bound without the action Deny",
		},
		"A worker exceeds its memory limit": {
			damage: func(t *testing.T, d *doctored) {
				d.setPod(t, "assay-worker-n1", corev1.ContainerStatus{
					Name: "c", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}},
				})
			},
			code: 1, want: "BAD  1 Node: n1: the worker is down: container c is waiting: CrashLoopBackOff, OOMKilled: it exceeded its memory limit of 64Mi",
		},
		"Workers run again after they exceeded their memory limit": {
			damage: func(t *testing.T, d *doctored) {
				for _, name := range []string{"n1", "n2"} {
					d.setPod(t, "assay-worker-"+name, corev1.ContainerStatus{
						Name: "c", RestartCount: 3, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
						LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
							Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Now(),
						}},
					})
				}
			},
			code: 1, want: "WARN 2 Nodes: n1, n2: the worker is ready again: container c was restarted, OOMKilled: it exceeded its memory limit of 64Mi",
		},
		"A rule may not be written": {
			damage: func(t *testing.T, d *doctored) {
				d.rule(t, metav1.Condition{
					Type: nfdv1alpha1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: nfdv1alpha1.ReasonForbidden,
					Message: `on 1 node; first on n1: rule "r": label "example.com/a": nodes "n1" is forbidden: closed for today`,
				})
			},
			code: 1, want: `BAD  NodeFeatureRule r is not written: on 1 node; first on n1: rule "r": label "example.com/a": nodes "n1" is forbidden: closed for today`,
		},
		"A source of the workers hangs": {
			damage: func(t *testing.T, d *doctored) {
				for _, name := range []string{"n1", "n2"} {
					d.condition(t, name, assayv1alpha1.ReasonSourcesUnread, "The worker has not read the source pci since the node booted.")
				}
			},
			code: 1, want: "WARN 2 Nodes: n1, n2: the condition FeaturesReady is not True: SourcesUnread: The worker has not read the source pci since the node booted.",
		},
		"A driver has registered no devices": {
			damage: func(t *testing.T, d *doctored) {
				d.condition(t, "n2", assayv1alpha1.ReasonWaitingForDrivers, "The DRA driver gpu.example.com has published no ResourceSlices of the node.")
			},
			code: 1, want: "WARN 1 Node: n2: the condition FeaturesReady is not True: WaitingForDrivers: The DRA driver gpu.example.com has published no ResourceSlices",
		},
		"The action fail keeps Nodes as they were": {
			damage: func(t *testing.T, d *doctored) {
				d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionRejecting, Status: metav1.ConditionTrue, Reason: "NodesFailed", Message: "kept unchanged: 1 node"})
			},
			code: 1, want: "WARN NodeFeatureRule r keeps Nodes as they were with its action fail: NodesFailed: kept unchanged: 1 node",
		},
		"Nodes deviate from a baseline": {
			damage: func(t *testing.T, d *doctored) {
				b := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
				b.Spec.Uniform = []assayv1alpha1.BaselineValue{{Name: "kernel", Value: `{@"kernel.version.full"}`}}
				d.create(t, b)
				b.Status.ObservedGeneration = b.Generation
				b.Status.Conditions = []metav1.Condition{{
					Type: assayv1alpha1.ConditionConforming, Status: metav1.ConditionFalse, Reason: assayv1alpha1.ReasonNodesDeviate,
					Message: "1 node deviates: n1", LastTransitionTime: metav1.Now(),
				}}
				d.updateStatus(t, b)
			},
			code: 1, want: "WARN NodeBaseline b: NodesDeviate: 1 node deviates: n1",
		},
		"A sub-chart with another name": {release: "platform-features", want: "ok   Deployment assay-system/platform-features-controller has 1 replica ready"},
		"Another namespace":             {namespace: "kube-features", want: "ok   Deployment kube-features/assay-controller has 1 replica ready"},
		"The definitions are of an older version": {
			damage: func(t *testing.T, d *doctored) {
				crd := &unstructured.Unstructured{}
				crd.SetAPIVersion("apiextensions.k8s.io/v1")
				crd.SetKind("CustomResourceDefinition")
				crd.SetName("nodefeaturerules.nfd.k8s-sigs.io")
				d.get(t, crd)
				versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
				unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "description")
				if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
					t.Fatal(err)
				}
				d.update(t, crd)
				t.Cleanup(func() {
					if err := c.ApplyCRDs(context.Background()); err != nil {
						t.Error(err)
					}
				})
			},
			code: 1, want: "BAD  CustomResourceDefinition nodefeaturerules.nfd.k8s-sigs.io is not Assay's, last written by script.test: the API server drops spec.description; " +
				"what was accepted before stays as it is, and what may have lost fields waits",
		},
		"A rule is rejected": {
			damage: func(t *testing.T, d *doctored) {
				d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: "Invalid", Message: "spec.rules[0]: unknown name"})
			},
			code: 1, want: "BAD  NodeFeatureRule r is rejected: spec.rules[0]: unknown name",
		},
		"Nodes lack what a rule gives": {
			damage: func(t *testing.T, d *doctored) { d.unlabeled(t) },
			code:   1, want: "WARN Node n1 differs from what its rules give, and the controller reports no reason: label example.com/everywhere is missing, and rules give \"true\"",
		},
		"Nodes keep what nothing gives": {
			damage: func(t *testing.T, d *doctored) {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
				d.get(t, n)
				n.Labels, n.Annotations = map[string]string{"example.com/old": "1"}, map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "example.com/old"}
				d.update(t, n)
			},
			code: 1, want: "WARN Node n1 differs from what its rules give, and the controller reports no reason: label example.com/old is \"1\", and rules give none",
		},
		"The controller reports why Nodes lack what a rule gives": {
			damage: func(t *testing.T, d *doctored) {
				d.unlabeled(t)
				d.published(t, hold.Removal, "it changed", time.Hour)
			},
			code: 1, want: "WARN RemovalHeld on Node n1: Removal held until ", // and not that Nodes differ
		},
		"A label flaps": {
			damage: func(t *testing.T, d *doctored) {
				d.held(t, hold.Flapping, "it changed 3 times within 1m0s, and stays for as long after the last change")
			},
			code: 1, want: "WARN 1 Node: a feature keeps changing, and the Node keeps an old value: n1: Left as it is until ",
		},
		"A key is contested": {
			damage: func(t *testing.T, d *doctored) {
				d.held(t, hold.Contested, "another client has changed it back 3 times within 1h0m0s")
			},
			code: 1, want: "WARN 1 Node: another client keeps changing what rules give, and the Node keeps the other value: n1: Not corrected until ",
		},
		"Another master labels nodes": {
			damage: func(t *testing.T, d *doctored) {
				d.event(t, hold.AnotherMaster, "nfd-master removes what rules give")
			},
			code: 1, want: "WARN 1 Node: another program labels Nodes and removes what rules give: n1: nfd-master removes what rules give",
		},
		"The controller holds removals": {
			damage: func(t *testing.T, d *doctored) {
				d.create(t, &corev1.Event{
					ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "n1.removal"}, Reason: hold.Removal, Type: corev1.EventTypeWarning,
					InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"}, Source: corev1.EventSource{Component: "assay-controller"},
					LastTimestamp: metav1.Now(), Message: "Not removed until later: removalBudget",
				})
			},
			code: 1, want: "WARN RemovalHeld on Node n1: Not removed until later: removalBudget",
		},
		"A key is not contested any more": {
			damage: func(t *testing.T, d *doctored) {
				d.published(t, hold.Contested, "another client", -time.Minute)
			},
			want: "ok   the controller reports no key of a Node that flaps",
		},
		"The configuration of the controller is rejected": {
			damage: func(t *testing.T, d *doctored) {
				m := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "assay-manager"},
					Data:       map[string]string{"nfd-master.conf": "enableTaints: true\nresyncPeriod: soon\n"},
				}
				testkit.Create(t, d.api, m)
				d.controller.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m.Name}},
				}}}
				d.update(t, d.controller)
			},
			code: 1, want: "BAD  ConfigMap assay-system/assay-manager: nfd-master.conf:2:15: resyncPeriod: ",
			also: "WARN cannot check everything: the settings of Deployment assay-system/assay-controller",
		},
		"Rules conflict": {
			damage: func(t *testing.T, d *doctored) {
				d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: "KeyWrittenTwice", Message: "label a"})
			},
			code: 1, want: "WARN NodeFeatureRule r conflicts with another rule: KeyWrittenTwice: label a",
		},
		"A pod selects a label of a feature that no Node has": {
			damage: func(t *testing.T, d *doctored) {
				d.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "selects"}, Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"feature.node.kubernetes.io/cpu-cpuid.AMXTILE": "true"}, Containers: d.template("x").Spec.Containers,
				}})
			},
			code: 1, want: "WARN 1 pod waiting: assay-system/selects: no Node meets the node selector feature.node.kubernetes.io/cpu-cpuid.AMXTILE=true",
		},
		"A pod selects another label that no Node has": {
			damage: func(t *testing.T, d *doctored) {
				d.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "selects"}, Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"pool": "none"}, Containers: d.template("x").Spec.Containers,
				}})
			},
			want: "ok   no pod waits for a scheduler that does not check its features",
		},
		"A group is rejected": {
			damage: func(t *testing.T, d *doctored) {
				g := &nfdv1alpha1.NodeFeatureGroup{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "g"}}
				g.Spec.Rules = []nfdv1alpha1.GroupRule{{Name: "g", MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "cpu.cpuid"}}}}
				d.create(t, g)
				g.Status.Conditions = notReady("spec.featureGroupRules[0]: unknown name")
				d.updateStatus(t, g)
			},
			code: 1, want: "BAD  NodeFeatureGroup assay-system/g is not ready: Invalid: spec.featureGroupRules[0]: unknown name",
		},
		"A template is rejected": {
			damage: func(t *testing.T, d *doctored) {
				b := &assayv1alpha1.NodeFeatureRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
				b.Spec.Rules = []nfdv1alpha1.Rule{{Name: "b", Labels: map[string]string{"example.com/a": "b"}}}
				d.create(t, b)
				b.Status.Conditions = notReady("spec.rules[0]: unknown name")
				d.updateStatus(t, b)
			},
			code: 1, want: "BAD  NodeFeatureRuleTemplate b is not ready: Invalid: spec.rules[0]: unknown name",
		},
		"Taints are disabled and a rule has taints": {
			damage: func(t *testing.T, d *doctored) {
				d.rule(t, metav1.Condition{Type: nfdv1alpha1.ConditionWithheld, Status: metav1.ConditionTrue, Reason: "TaintsDisabled", Message: "1 taint is not written"})
			},
			code: 1, want: "WARN NodeFeatureRule r has outputs that a setting withholds: TaintsDisabled: 1 taint is not written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctored{
				c: c, api: testkit.Client(t, c.User), assay: assay,
				namespace: cmp.Or(test.namespace, "assay-system"), release: cmp.Or(test.release, "assay"),
			}
			d.install(t)
			if test.damage != nil {
				test.damage(t, d)
			}
			testkit.Eventually(t, "the doctor reports it", func(context.Context) error { return d.diagnosed(test.want, test.also, test.code) })
			t.Logf("%s: %s", name, d.first)
		})
	}
}

// TestDoctorWaits repairs an installation while assay doctor --wait runs.
func TestDoctorWaits(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	assay := testkit.Program(t, "assay")
	d := &doctored{c: c, api: testkit.Client(t, c.User), assay: assay, namespace: "assay-system", release: "assay"}
	d.install(t)
	d.controller.Spec.Replicas = ptr.To[int32](0)
	d.update(t, d.controller)
	wait := exec.CommandContext(t.Context(), assay, "doctor", "--kubeconfig", c.Kubeconfig, "--wait", "10m")
	var out strings.Builder
	wait.Stdout = &out
	progress, err := wait.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	reports := bufio.NewScanner(progress)
	for reports.Scan() {
		if strings.HasPrefix(reports.Text(), "waiting: Deployment assay-system/assay-controller is scaled to 0 replicas") {
			break
		}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))
	if err := d.api.Patch(t.Context(), d.controller, patch); err != nil {
		t.Fatal(err)
	}
	for reports.Scan() { // it must not block on a full pipe
	}
	if err := wait.Wait(); err != nil || !strings.Contains(out.String(), "ok   Deployment assay-system/assay-controller has 1 replica ready") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// diagnosed runs the doctor.
func (d *doctored) diagnosed(want, also string, code int) error {
	out, err := exec.Command(d.assay, "doctor", "--kubeconfig", d.c.Kubeconfig).CombinedOutput()
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	lines, found := strings.Split(string(out), "\n"), false
	d.first = lines[0]
	if code != 0 && !strings.HasPrefix(lines[0], want) {
		return fmt.Errorf("the first line does not name the cause, %q:\n%s", want, out)
	}
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, want):
			found = true
		case also != "" && strings.HasPrefix(line, also):
		case strings.HasPrefix(line, "BAD "), strings.HasPrefix(line, "WARN"):
			return fmt.Errorf("it also reports %q:\n%s", line, out)
		}
	}
	if !found || got != code {
		return fmt.Errorf("exit code %d, want %d; want a line %q:\n%s", got, code, want, out)
	}
	return nil
}

// install makes an installation that nothing is wrong with.
func (d *doctored) install(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}
	if err := client.IgnoreAlreadyExists(d.api.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		testkit.Node(t, d.api, node)
		testkit.Create(t, d.api, &nfdv1alpha1.NodeFeature{
			ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: d.namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		})
		d.pod(t, "worker", node)
	}
	d.controller, d.hook = d.deployment(t, "controller"), d.deployment(t, "webhook")
	d.workers = &appsv1.DaemonSet{ObjectMeta: d.meta("worker"), Spec: appsv1.DaemonSetSpec{Selector: d.selector("worker"), Template: d.template("worker")}}
	testkit.Create(t, d.api, d.workers)
	d.lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "nfd-master.nfd.kubernetes.io"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(d.release + "-controller-0_1234"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	testkit.Create(t, d.api, d.lease)
	d.rights = testkit.Rights(t, d.api, d.namespace)
	testkit.Policies(t, d.api, d.namespace)
	d.serve(t)
}

// serve runs the webhook and makes the API server call it.
func (d *doctored) serve(t *testing.T) {
	t.Helper()
	get, bundle := d.certificate(t, d.release+"-webhook-cert")
	server, err := webhook.New(webhook.Options{Addr: "127.0.0.1:0", GetCertificate: get, Report: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the webhook answers", server.Answers)
	d.bundle, d.url = bundle, "https://"+server.Addr()
	testkit.Create(t, d.api, d.configuration(bundle))
	testkit.Create(t, d.api, d.early(bundle))
}

func (d *doctored) configuration(bundle []byte) client.Object {
	return webhook.Configuration(webhook.ConfigurationOptions{URL: d.url, CABundle: bundle})
}

func (d *doctored) early(bundle []byte) client.Object {
	return webhook.EarlyConfiguration(webhook.ConfigurationOptions{URL: d.url, CABundle: bundle})
}

// certificate creates a Secret with a certificate from a new authority.
func (d *doctored) certificate(t *testing.T, secret string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), []byte) {
	t.Helper()
	api, err := kubernetes.NewForConfig(d.c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, d.api, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: secret}})
	secrets := api.CoreV1().Secrets(d.namespace)
	keeper, err := certs.NewSelfSigned(certs.Options{Secrets: secrets, Name: secret, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return keeper.GetCertificate, keeper.Bundle()
}

func (d *doctored) meta(part string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: d.namespace, Name: d.release + "-" + part, Labels: d.selector(part).MatchLabels}
	m.Labels["app.kubernetes.io/part-of"] = "assay"
	return m
}

func (d *doctored) selector(part string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		"app.kubernetes.io/name": d.release, "app.kubernetes.io/instance": d.release, "app.kubernetes.io/component": part,
	}}
}

func (d *doctored) template(part string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.selector(part).MatchLabels}, Spec: corev1.PodSpec{
		ServiceAccountName: testkit.Account(part),
		Containers: []corev1.Container{{
			Name: "c", Image: "none", Args: []string{part, "--cert-secret=" + d.release + "-webhook-cert"},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		}},
	}}
}

// allow replaces the rights of all ServiceAccounts by those that a function keeps of the chart's.
func (d *doctored) allow(t *testing.T, keep func(*rights.Right) bool) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some-of-" + d.namespace}}
	for _, part := range []string{"controller", "webhook", "worker"} {
		for _, r := range rights.Of(part) {
			if keep(&r) {
				role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}})
			}
		}
	}
	d.create(t, role)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: d.rights.(*rbacv1.ClusterRoleBinding).Subjects}
	binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	d.create(t, binding)
	d.delete(t, d.rights)
}

// condition sets the condition FeaturesReady of a Node to False, as the controller does, an hour ago.
func (d *doctored) condition(t *testing.T, name, reason, message string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.get(t, n)
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: assayv1alpha1.FeaturesReadyCondition, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
	})
	d.updateStatus(t, n)
}

// deployment makes a part of which one replica is ready.
func (d *doctored) deployment(t *testing.T, part string) *appsv1.Deployment {
	t.Helper()
	o := &appsv1.Deployment{ObjectMeta: d.meta(part), Spec: appsv1.DeploymentSpec{Selector: d.selector(part), Template: d.template(part)}}
	testkit.Create(t, d.api, o)
	o.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	if err := d.api.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	d.pod(t, part, "")
	return o
}

// pod makes a ready pod of a part.
func (d *doctored) pod(t *testing.T, part, node string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.namespace, Name: d.release + "-" + part + "-" + cmp.Or(node, "0"), Labels: d.selector(part).MatchLabels,
	}, Spec: d.template(part).Spec}
	p.Spec.NodeName = cmp.Or(node, "control-plane")
	if err := d.api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(d.api.Delete(context.Background(), p, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	})
	d.setPod(t, p.Name, corev1.ContainerStatus{Name: "c", Ready: true})
}

func (d *doctored) setPod(t *testing.T, name string, status corev1.ContainerStatus) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name}}
	d.get(t, p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	if err := d.api.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// configure mounts a ConfigMap with a configuration of the workers.
func (d *doctored) configure(t *testing.T, text string) {
	t.Helper()
	d.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "assay-worker"}, Data: map[string]string{"nfd-worker.conf": text}})
	d.workers.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "assay-worker"}},
	}}}
	d.update(t, d.workers)
}

func (d *doctored) deletePod(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name}}
	if err := d.api.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// rule makes a rule that the controller has evaluated, with a condition.
func (d *doctored) rule(t *testing.T, condition metav1.Condition) {
	t.Helper()
	r := &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: "r", Labels: map[string]string{"example.com/a": "b"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "no.such"}},
		}}},
	}
	d.evaluated(t, r, condition)
}

// evaluated creates a rule that the controller has evaluated, with a condition.
func (d *doctored) evaluated(t *testing.T, r *nfdv1alpha1.NodeFeatureRule, condition metav1.Condition) {
	t.Helper()
	testkit.Create(t, d.api, r)
	condition.LastTransitionTime = metav1.Now()
	r.Status.ObservedGeneration, r.Status.Conditions = r.Generation, []metav1.Condition{condition}
	if err := d.api.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// held makes the controller report that it leaves a label of n1 as it is, which it does for longer than the test runs.
func (d *doctored) held(t *testing.T, reason, why string) {
	t.Helper()
	d.unlabeled(t)
	d.published(t, reason, why, time.Hour)
}

// published publishes a hold of a label of n1, as the controller does.
func (d *doctored) published(t *testing.T, reason, why string, left time.Duration) {
	t.Helper()
	user, err := d.c.NewUser("system:serviceaccount:"+d.namespace+":assay-manager", "system:masters") // the policy assay-holds lets no other
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	d.get(t, n)
	h := hold.Hold{Reason: reason, Until: time.Now().Add(left), Why: why, Keys: []string{"label example.com/everywhere"}}
	testkit.Create(t, testkit.Client(t, user), hold.Event("", n, []hold.Hold{h}, time.Now()))
}

// event creates an Event of n1.
func (d *doctored) event(t *testing.T, reason, message string) {
	t.Helper()
	testkit.Create(t, d.api, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "n1.held"}, Reason: reason,
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"}, Message: message, LastTimestamp: metav1.Now(),
	})
}

// unlabeled creates a rule that gives each node a label, which n2 alone has.
func (d *doctored) unlabeled(t *testing.T) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	d.get(t, n)
	n.Labels, n.Annotations = map[string]string{"example.com/everywhere": "true"}, map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "example.com/everywhere"}
	d.update(t, n)
	d.evaluated(t, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		Spec:       nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{"example.com/everywhere": "true"}}}},
	}, metav1.Condition{Type: nfdv1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Compiled"})
}

// notReady returns the condition of an object that is rejected.
func notReady(message string) []metav1.Condition {
	return []metav1.Condition{{
		Type: nfdv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Invalid", Message: message, LastTransitionTime: metav1.Now(),
	}}
}

func (d *doctored) updateStatus(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.api.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (d *doctored) get(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}

func (d *doctored) create(t *testing.T, o client.Object) {
	t.Helper()
	testkit.Create(t, d.api, o)
}

func (d *doctored) update(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func (d *doctored) delete(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.api.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
