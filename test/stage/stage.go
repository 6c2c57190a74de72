//go:build linux

// Package stage runs Assay's programs on a control plane of their own, and shows what happens there.
package stage

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// Namespace is that of Assay.
const Namespace = "assay-system"

// CertSecret is the Secret of the webhook's certificate.
const CertSecret = "assay-webhook-cert"

// Core are the options of a control plane for programs that need no scheduler, no controller manager and no kubelet.
var Core = cluster.Options{FakeNodes: true, Core: true}

// Run calls a function with a new control plane with Assay's kinds, in a directory of its own, and stops it. If dir is empty, the directory is
// temporary: it is removed unless the function fails, and the error names it.
func Run(ctx context.Context, dir string, opts cluster.Options, do func(*cluster.Cluster) error) error {
	if dir != "" {
		return run(ctx, dir, opts, do)
	}
	dir, err := os.MkdirTemp("", "assay-test-")
	if err != nil {
		return err
	}
	if err := run(ctx, dir, opts, do); err != nil {
		return fmt.Errorf("%w\nthe logs are in %s/log", err, dir)
	}
	return os.RemoveAll(dir)
}

func run(ctx context.Context, dir string, opts cluster.Options, do func(*cluster.Cluster) error) error {
	opts.RunDir = dir
	if opts.Progress == nil {
		opts.Progress = os.Stdout
	}
	c, err := cluster.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer c.Stop()
	if err := c.ApplyCRDs(ctx); err != nil {
		return err
	}
	return do(c)
}

// Scheme contains the kinds of Kubernetes and Assay.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, nfdv1alpha1.AddToScheme, assayv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds with the same name: a programming error
		}
	}
	return s
})

// Client returns a client without a cache that acts as the user. Warnings go to the handler.
func Client(user *cluster.User, warnings rest.WarningHandler) (client.WithWatch, error) {
	config := user.RESTConfig()
	config.WarningHandler = warnings
	return client.NewWithWatch(config, client.Options{Scheme: Scheme()})
}

// CreateAll creates objects.
func CreateAll(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// NamespaceObject returns the namespace of a name.
func NamespaceObject(name string) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// WebhookObjects returns the objects that an installation creates and the webhook updates: a Secret and the named configurations.
func WebhookObjects(namespace, secret string, names ...string) []client.Object {
	objects := []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret}}}
	for _, name := range names {
		meta := metav1.ObjectMeta{Name: name}
		objects = append(objects, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta})
	}
	return objects
}

// Keys returns the labels, annotations, resources, taints and conditions of a Node whose keys are accepted, with their values. A label is
// "label KEY", a taint "taint KEY:EFFECT"; the value of a resource is its capacity.
func Keys(n *corev1.Node, accepted func(key string) bool) map[string]string {
	out := map[string]string{}
	add := func(kind keys.Kind, key, more, value string) {
		if accepted(key) {
			out[string(kind)+" "+key+more] = value
		}
	}
	for key, value := range n.Labels {
		add(keys.Label, key, "", value)
	}
	for key, value := range n.Annotations {
		add(keys.Annotation, key, "", value)
	}
	for key, amount := range n.Status.Capacity {
		add(keys.Resource, string(key), "", amount.String())
	}
	for _, t := range n.Spec.Taints {
		add(keys.Taint, t.Key, ":"+string(t.Effect), t.Value)
	}
	for _, c := range n.Status.Conditions {
		add(keys.Condition, string(c.Type), "", keys.FormatCondition(string(c.Status), c.Reason, c.Message))
	}
	return out
}

// Older reports whether a resource version is older than another one, or is none.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order < 0
}

// Locked makes a writer safe for concurrent use.
func Locked(to io.Writer) io.Writer { return &locked{to: to} }

type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// Say prints a line with the time.
func Say(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// Sleep waits, or returns why ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Command returns a command of kubectl.
func Command(ctx context.Context, c *cluster.Cluster, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Program(kube.Kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "KUBECACHEDIR="+filepath.Join(c.Dir(), "kubectl-cache"))
	return cmd
}

// Show runs a command, and prints it and its output with warnings.
func Show(cmd *exec.Cmd) error {
	fmt.Println("$", Line(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...)))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// Line returns a command line that can be pasted into a shell.
func Line(args []string) string {
	var line strings.Builder
	for i, arg := range args {
		if i > 0 {
			line.WriteByte(' ')
		}
		if strings.ContainsAny(arg, ` "'[]{}$*`) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		line.WriteString(arg)
	}
	return line.String()
}

// Module finds the version and the sources of a module that a module in a directory requires.
func Module(ctx context.Context, dir, module string) (version, source string, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	version, source, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return version, source, nil
}
