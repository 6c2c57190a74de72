// Package schedulerconfig is the verb scheduler-config: it prints the configuration of a scheduler that asks the extender.
package schedulerconfig

import (
	"embed"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.tmpl
var templates embed.FS

// installations are the supported ways to run the scheduler, the recommended one first.
var installations = []string{"second", "kubeadm", "k3s", "rke2", "talos"}

// options are the flags of assay scheduler-config. The templates use the exported fields and methods.
type options struct {
	For       string
	URL       string
	Ignorable bool
	Weight    int

	CA, Cert, Key string // paths of files on the control plane
}

// NewCommand returns assay scheduler-config.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "scheduler-config --for " + strings.Join(installations, "|"),
		Short: "Print how to configure a scheduler to use Assay's extender",
		Long: `Print how to configure a scheduler to use Assay's extender, so that it places pods on nodes with the required features.

second    a second scheduler with the extender in the same pod, as the chart installs; the cluster's scheduler is not changed
kubeadm   the cluster's scheduler, as kubeadm runs it
k3s, rke2 the cluster's scheduler where it is part of one program
talos     the cluster's scheduler, as a machine configuration patch

Pods that require the label of a NodeFeatureRequest need no extender: see assay request selector. That is the way for managed control
planes, whose scheduler cannot be configured; a second scheduler is another.`,
		Example: `  assay scheduler-config --for second
  assay scheduler-config --for kubeadm --ignorable=false`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := f.render()
			if err == nil {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.For, "for", "", "kind of installation of the scheduler: "+strings.Join(installations, ", "))
	flags.StringVar(&f.URL, "url", "", "URL of the extender; by default on localhost for a second scheduler, otherwise the Service of the chart")
	flags.BoolVar(&f.Ignorable, "ignorable", true, "schedule pods without the extender when it does not answer; false: keep them pending")
	flags.IntVar(&f.Weight, "weight", 3, "weight of preferred features in the scores of nodes; 2 to 3 is about as much as node affinity")
	flags.StringVar(&f.CA, "ca-file", "/etc/kubernetes/assay/ca.crt", "file on the control plane with the CA of the extender's certificate")
	flags.StringVar(&f.Cert, "cert-file", "/etc/kubernetes/assay/client.crt", "file on the control plane with the scheduler's client certificate")
	flags.StringVar(&f.Key, "key-file", "/etc/kubernetes/assay/client.key", "file on the control plane with the key of the client certificate")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(installations, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// withoutScheduler comes first in what is printed: most users need nothing of the rest.
const withoutScheduler = `# Pods that require the label of a NodeFeatureRequest need none of this: it works with every scheduler. Print it with
#   assay request selector NAME
# The following is for requirements in annotations, preferences, staleness, and requests for which nodes get no label.
#
`

// render executes the template of the installation.
func (f *options) render() (string, error) {
	if !slices.Contains(installations, f.For) {
		return "", fmt.Errorf("no kind of installation: pass --for %s", strings.Join(installations, "|"))
	}
	if f.URL == "" {
		f.URL = "https://assay-extender.assay-system.svc:8443"
		if f.For == "second" {
			f.URL = "http://127.0.0.1:8888"
		}
	}
	u, err := url.Parse(f.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("invalid --url %q: use for example https://assay-extender.assay-system.svc:8443", f.URL)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("invalid --url %s: use https; http is allowed for loopback addresses only", f.URL)
	}
	if f.Weight < 1 || f.Weight > 100 {
		return "", fmt.Errorf("--weight is %d; it must be 1 to 100", f.Weight)
	}
	all, err := template.New("").Funcs(template.FuncMap{"indent": indentBy}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return "", err
	}
	var config, out strings.Builder
	out.WriteString(withoutScheduler)
	if err := all.ExecuteTemplate(&config, "configuration.yaml.tmpl", f); err != nil {
		return "", err
	}
	if err := readable(config.String()); err != nil {
		return "", err
	}
	err = all.ExecuteTemplate(&out, f.For+".yaml.tmpl", struct {
		*options
		Configuration string
	}{f, strings.TrimRight(config.String(), "\n")})
	return out.String(), err
}

// readable returns an error if a scheduler could not read a configuration. The templates hold comments, which the types cannot.
func readable(config string) error {
	var c schedulerv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict([]byte(config), &c); err != nil {
		return fmt.Errorf("invalid configuration of the scheduler: %w", err)
	}
	if c.APIVersion != schedulerv1.SchemeGroupVersion.String() || c.Kind != "KubeSchedulerConfiguration" {
		return fmt.Errorf("invalid configuration of the scheduler: it is %s %s", c.APIVersion, c.Kind)
	}
	return nil
}

// TLS reports whether the scheduler connects to the extender with TLS.
func (f *options) TLS() bool { return strings.HasPrefix(f.URL, "https:") }

// Own reports whether the scheduler is the cluster's default scheduler.
func (f *options) Own() bool { return f.For != "second" }

// Kubeconfig returns the path of the scheduler's kubeconfig, or "" if the scheduler does not need one.
func (f *options) Kubeconfig() string {
	switch f.For {
	case "kubeadm":
		return "/etc/kubernetes/scheduler.conf"
	case "k3s":
		return "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
	case "rke2":
		return "/var/lib/rancher/rke2/server/cred/scheduler.kubeconfig"
	}
	return ""
}

func indentBy(n int, text string) string {
	pad := strings.Repeat(" ", n)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}
