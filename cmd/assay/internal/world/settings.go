package world

import (
	"context"
	"fmt"
	"io"
	"path"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/settings"
)

// SettingFlags are the settings of the controller that affect the results of rules. They have the same names as the controller's
// flags, so that users can copy them from its manifest.
type SettingFlags struct{ settings.Flags }

// AddFlags adds the settings of the controller.
func (f *SettingFlags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.File, "config", "", "configuration file of the controller, nfd-master.conf; flags override it")
	flags.StringVar(&f.Options, "options", "", "configuration in JSON or YAML that overrides the file")
	f.Register(flags, UnknownInstallation(), func(s settings.Setting) bool { return s.Assay })
}

// UnknownInstallation returns the settings without an installation. Taints are shown.
func UnknownInstallation() *settings.Settings {
	s := settings.Default()
	s.EnableTaints = true
	return s
}

// Over returns settings with those of the flags. It changes base, and prints warnings.
func (f *SettingFlags) Over(notes io.Writer, base *settings.Settings) (*settings.Settings, error) {
	warnings, err := f.Change(base)
	for _, w := range warnings {
		fmt.Fprintln(notes, "note:", clip.Printable(w))
	}
	return base, err
}

// Installed holds the settings of a program of Assay in a cluster.
type Installed struct {
	*settings.Settings
	// The webhook alone has the following.
	StrictAdmission, NodeWarnings bool
	Tolerations                   string
}

// ReadInstalled returns the settings of the controller or the webhook in a cluster, or nil if there is none. An empty namespace means all
// namespaces. Of several controllers it returns the one with the name.
func ReadInstalled(ctx context.Context, c *cluster.Client, namespace, component, name string) (*Installed, error) {
	list, err := c.Deployments(ctx, namespace, "app.kubernetes.io/part-of=assay,app.kubernetes.io/component="+component)
	if err != nil {
		return nil, err
	}
	var out *Installed
	for i := range list {
		found, err := readDeployment(ctx, c, &list[i], component)
		if err != nil {
			return nil, fmt.Errorf("the settings of Deployment %s/%s: %w", list[i].Namespace, list[i].Name, err)
		}
		if out == nil || found.Instance == name {
			out = found
		}
	}
	return out, nil
}

// readDeployment reads the arguments of a program and its configuration file.
func readDeployment(ctx context.Context, c *cluster.Client, d *appsv1.Deployment, component string) (*Installed, error) {
	out := &Installed{Settings: settings.Default()}
	f := settings.Flags{}
	flags := pflag.NewFlagSet(component, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	file := flags.String("config", settings.DefaultFile, "")
	flags.StringVar(&f.Options, "options", "", "")
	flags.BoolVar(&out.StrictAdmission, "strict-admission", false, "")
	flags.BoolVar(&out.NodeWarnings, "node-warnings", true, "")
	flags.StringVar(&out.Tolerations, "worker-tolerations", "", "")
	f.Register(flags, settings.Default(), func(settings.Setting) bool { return true })
	for _, container := range d.Spec.Template.Spec.Containers {
		if args := settings.LongFlags(container.Args); len(args) > 0 && args[0] == component {
			if err := flags.Parse(args[1:]); err != nil {
				return nil, err
			}
		}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		m, err := c.ConfigMap(ctx, d.Namespace, v.ConfigMap.Name)
		if err != nil {
			return nil, err
		}
		if _, err := out.Read("ConfigMap "+m.Name, []byte(m.Data[path.Base(*file)])); err != nil {
			return nil, err
		}
	}
	_, err := f.Change(out.Settings)
	return out, err
}
