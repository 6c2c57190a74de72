package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logging is what flags say about the log.
type logging struct {
	format string
	level  int
}

func (l *logging) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.format, "log-format", "text", "text or json")
	flags.IntVar(&l.level, "v", 0, "how much to log: 0 what happens, 1 each write, 4 everything")
}

func (l *logging) handler(w io.Writer) slog.Handler {
	opt := &slog.HandlerOptions{Level: slog.Level(-l.level)}
	if l.format == "json" {
		return slog.NewJSONHandler(w, opt)
	}
	return slog.NewTextHandler(w, opt)
}
