package worker

import (
	"log/slog"

	"github.com/assay-project/assay/internal/config/workerconfig"
)

// Options are what the command line says.
type Options struct {
	// ConfigFile is read again when it changes. Inline is YAML that wins over it, Override wins over both.
	ConfigFile, Inline string
	Override           workerconfig.Override
	// ConfigDir is the directory of features.d, source.d and custom.d.
	ConfigDir string
	// Kubeconfig is a file; empty is KUBECONFIG or, in a pod, the service account.
	Kubeconfig string
	// Namespace is that of the NodeFeature; empty is that of the pod.
	Namespace string
	// NodeName is the name of this node, unless the token of the service account has one.
	NodeName string
	// Port serves /healthz, /readyz and /metrics; 0 is none.
	Port int
	// Oneshot discovers and publishes once. Output prints what was discovered then, as yaml or json.
	Oneshot bool
	Output  string
	// HostPaths are container, native, or auto; HostRoot is the directory that holds the host's /.
	HostPaths, HostRoot string
	// Sandbox is auto or off.
	Sandbox string
	// LogLevel is set by the configuration.
	LogLevel *slog.LevelVar
}
