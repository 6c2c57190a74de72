package worker

import (
	"log/slog"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/internal/config/workerconfig"
)

// Options are the parsed flags.
type Options struct {
	// ConfigFile is read again when it changes. Inline is YAML that overrides it, and Override overrides both.
	ConfigFile, Inline string
	Override           workerconfig.Override
	// ConfigDir is the directory with features.d, source.d and custom.d.
	ConfigDir string
	// Kubeconfig is the path of a kubeconfig. If it is empty, KUBECONFIG or, in a pod, the service account is used.
	Kubeconfig string
	// Namespace is the namespace of the NodeFeature. It defaults to the namespace of the pod.
	Namespace string
	// NodeName is the name of this node, unless the service account token contains a name.
	NodeName string
	// Port is the port of /healthz, /readyz and /metrics; 0 disables them.
	Port int
	// Oneshot discovers and publishes once. Output then prints the result, as yaml or json.
	Oneshot bool
	Output  string
	// HostPaths are container, native, or auto. HostRoot is the directory that contains the host's /.
	HostPaths, HostRoot string
	// Sandbox is auto or off.
	Sandbox string
	// LogLevel is changed by the configuration.
	LogLevel *slog.LevelVar

	wrap func([]discovery.Source) []discovery.Source // for tests
}
