package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/worker"
)

const defaultPort = 8080

// options holds the parsed command line.
type options struct {
	worker.Options
	commonOptions
}

// commonOptions are the flags that all modes of the program have.
type commonOptions struct {
	logLevel    slog.LevelVar
	logFormat   string
	sandbox     string
	showVersion bool
	warnings    []string
}

// parseFlags parses the command line. Flags of NFD have the same meaning, with one dash or two.
func parseFlags(args []string, stderr io.Writer) (*options, error) {
	opt := &options{}
	opt.LogLevel = &opt.logLevel
	fs := flag.NewFlagSet("assay-worker", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&opt.ConfigFile, "config", workerconfig.DefaultFile, "configuration `file`; it is read again when it changes")
	fs.StringVar(&opt.ConfigDir, "config-dir", workerconfig.Dir, "`directory` of features.d, source.d and custom.d")
	fs.StringVar(&opt.Inline, "options", "", "configuration as `YAML` that overrides the file")
	fs.StringVar(&opt.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG or, in a pod, the service account")
	fs.StringVar(&opt.Namespace, "namespace", "", "`namespace` of the NodeFeature; empty: the namespace of the pod")
	fs.StringVar(&opt.NodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of this node; the node name in the service account token takes precedence")
	fs.IntVar(&opt.Port, "port", defaultPort, "`port` of /healthz, /readyz and /metrics; 0: do not serve them")
	fs.BoolVar(&opt.Oneshot, "oneshot", false, "discover and publish once, then exit")
	fs.StringVar(&opt.Output, "o", "", "print the discovered features as `yaml or json`; requires -oneshot")
	fs.StringVar(&opt.HostPaths, "host-paths", "auto", "location of the host's directories: container (/host-sys and so on), native, or auto")
	fs.StringVar(&opt.HostRoot, "host-root", "", "`directory` to use as the host's /")
	opt.commonOptions.register(fs)

	o := &opt.Override
	boolFlag(fs, "no-publish", "discover features without publishing them", &o.NoPublish)
	listFlag(fs, "feature-sources", "comma-separated `sources` of features; all, -name to leave one out", &o.FeatureSources)
	listFlag(fs, "label-sources", "comma-separated `sources` of labels; all, -name to leave one out", &o.LabelSources)
	listFlag(fs, "no-publish-features", "comma-separated `features` not to publish; a trailing * matches any suffix", &o.NoPublishFeatures)
	listFlag(fs, "owner-refs", "comma-separated `owners` of the NodeFeature: node (default), pod, ds, none", &o.OwnerRefs)
	opt.compatibility(fs)

	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if err := opt.check(fs.Args()); err != nil {
		_, _ = fmt.Fprintln(stderr, "assay-worker:", err)
		return nil, err
	}
	return opt, nil
}

func (opt *options) check(rest []string) error {
	switch {
	case !filepath.IsAbs(opt.ConfigDir):
		return fmt.Errorf("-config-dir %q: write an absolute path", opt.ConfigDir)
	case !slices.Contains([]string{"", "yaml", "json"}, opt.Output):
		return fmt.Errorf("-o %q: write yaml or json", opt.Output)
	case opt.Output != "" && !opt.Oneshot:
		return errors.New("-o requires -oneshot; add -no-publish to discover without publishing")
	}
	opt.Options.Sandbox = opt.sandbox
	return opt.commonOptions.check(rest, opt.HostPaths, opt.Port)
}

// register adds the flags, and those of klog, which have no effect.
func (opt *commonOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&opt.logFormat, "log-format", "text", "format of the log: text or json")
	fs.StringVar(&opt.sandbox, "sandbox", "auto", "drop privileges that are not needed after startup, with Landlock if the kernel supports it: auto or off")
	fs.BoolVar(&opt.showVersion, "version", false, "print the version and exit")
	fs.Func("log-level", "`level` of the log: debug, info, warn or error", func(s string) error { return opt.logLevel.UnmarshalText([]byte(s)) })
	fs.Func("v", "verbosity as a klog `level`: 1 and above log debug messages", opt.verbosity)
	for _, name := range []string{"logtostderr", "alsologtostderr", "skip_headers", "skip_log_headers", "add_dir_header", "one_output"} {
		fs.BoolFunc(name, "flag of klog, without effect: the log goes to stderr", func(string) error { return nil })
	}
	for _, name := range []string{"log_dir", "log_file", "log_file_max_size", "stderrthreshold", "vmodule", "log_backtrace_at"} {
		fs.Func(name, "flag of klog, without effect: the log goes to stderr", func(string) error {
			opt.warn("-%s has no effect: the log goes to stderr", name)
			return nil
		})
	}
}

// check checks what all modes of the program have: its arguments, the host's directories, the format of the log, the sandbox and the port.
func (opt *commonOptions) check(rest []string, hostPaths string, port int) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags", rest[0])
	case !slices.Contains([]string{"auto", "container", "native"}, hostPaths):
		return fmt.Errorf("-host-paths %q: write auto, container or native", hostPaths)
	case !slices.Contains([]string{"text", "json"}, opt.logFormat):
		return fmt.Errorf("-log-format %q: write text or json", opt.logFormat)
	case !slices.Contains([]string{"auto", "off"}, opt.sandbox):
		return fmt.Errorf("-sandbox %q: write auto or off", opt.sandbox)
	case port < 0 || port > 65535:
		return fmt.Errorf("-port %d: write 0 to 65535", port)
	}
	return nil
}

// logger returns a logger that writes to w. The configuration may change its level later.
func (opt *commonOptions) logger(w io.Writer) *slog.Logger {
	h := &slog.HandlerOptions{Level: &opt.logLevel}
	if opt.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

func (opt *commonOptions) warn(format string, args ...any) {
	opt.warnings = append(opt.warnings, fmt.Sprintf(format, args...))
}

// compatibility adds flags of current and past NFD versions that have no effect here or have another name, so that the worker
// starts with existing manifests.
func (opt *options) compatibility(fs *flag.FlagSet) {
	o := &opt.Override
	old := "deprecated flag of NFD"
	fs.BoolFunc("no-owner-refs", old+": use -owner-refs=none", func(s string) error {
		opt.warn("-no-owner-refs is deprecated: use -owner-refs=none")
		on, err := strconv.ParseBool(s)
		if on {
			o.OwnerRefs = &[]string{}
		}
		return err
	})
	fs.Func("sources", old+": use -label-sources", func(s string) error {
		opt.warn("-sources is deprecated: use -label-sources")
		o.LabelSources = new(splitList(s))
		return nil
	})
	fs.Func("sleep-interval", old+": use core.sleepInterval of the configuration", func(s string) error {
		opt.warn("-sleep-interval is deprecated: use core.sleepInterval of the configuration")
		d, err := time.ParseDuration(s)
		o.SleepInterval = &d
		return err
	})
	fs.Func("label-whitelist", old+": use core.labelWhiteList of the configuration", func(s string) error {
		opt.warn("-label-whitelist is deprecated: use core.labelWhiteList of the configuration")
		o.LabelWhiteList = &s
		return nil
	})
	fs.Func("metrics", old+": use -port", func(s string) (err error) {
		opt.warn("-metrics is deprecated: use -port")
		opt.Port, err = strconv.Atoi(s)
		return err
	})
	fs.Func("feature-gates", "feature gates of NFD; NodeFeatureAPI is always on, others have no effect", func(s string) error {
		if strings.Contains(s, "NodeFeatureAPI=false") {
			opt.warn("-feature-gates: NodeFeatureAPI is always enabled; Assay does not use gRPC")
		}
		return nil
	})
	for _, name := range []string{"server", "server-name-override", "ca-file", "cert-file", "key-file", "grpc-health"} {
		fs.Func(name, "removed flag of NFD, without effect", func(string) error {
			opt.warn("-%s has no effect: features are published as a NodeFeature, not over gRPC", name)
			return nil
		})
	}
	fs.BoolFunc("enable-nodefeature-api", "removed flag of NFD, without effect", func(string) error {
		opt.warn("-enable-nodefeature-api has no effect: features are always published as a NodeFeature")
		return nil
	})
}

// verbosity converts klog's levels to the levels of slog.
func (opt *commonOptions) verbosity(s string) error {
	n, err := strconv.Atoi(s)
	if err == nil && n > 0 {
		opt.logLevel.Set(slog.LevelDebug)
	}
	return err
}

func boolFlag(fs *flag.FlagSet, name, usage string, dst **bool) {
	fs.BoolFunc(name, usage, func(s string) error {
		v, err := strconv.ParseBool(s)
		*dst = &v
		return err
	})
}

func listFlag(fs *flag.FlagSet, name, usage string, dst **[]string) {
	fs.Func(name, usage, func(s string) error {
		*dst = new(splitList(s))
		return nil
	})
}

// splitList splits at commas. An empty string is an empty list.
func splitList(s string) []string {
	list := []string{}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
