package main

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logging holds the flags for logs.
type logging struct {
	format string
	level  int
}

func (l *logging) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.format, "log-format", "text", "format of the log: text or json")
	flags.IntVar(&l.level, "v", 0, "verbosity of the log: 0 for events, 1 adds each write and messages of libraries, 4 everything")
}

// use configures all loggers of the process to use one handler: those of Assay and controller-runtime, and klog for client-go.
func (l *logging) use(w io.Writer) {
	handler := quiet{l.handler(w)}
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler))
}

func (l *logging) handler(w io.Writer) slog.Handler {
	opt := &slog.HandlerOptions{Level: slog.Level(-l.level)}
	if l.format == "json" {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}

// quiet changes the level of messages of controller-runtime from 0 to 1: it logs each source, controller and server that it starts.
type quiet struct{ slog.Handler }

// library is the prefix of functions in controller-runtime. relay is the prefix of functions that log on behalf of others: warnings
// of the API server, and the global logger.
const (
	library = "sigs.k8s.io/controller-runtime/"
	relay   = library + "pkg/log."
)

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelInfo {
		caller, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		if strings.HasPrefix(caller.Function, library) && !strings.HasPrefix(caller.Function, relay) {
			if r.Level = slog.Level(-1); !q.Enabled(ctx, r.Level) {
				return nil
			}
		}
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
