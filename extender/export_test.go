package extender

import (
	"context"
	"io"
	"net"
)

// Serve is Run with a listener of the test.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l) }

// Complaints returns the writer for the log messages of net/http.
func Complaints(refused func(from string, why error), report func(error)) io.Writer {
	return complaints{refused, report}
}

// Timeouts, for tests of clients that exceed them.
const (
	ReadTimeout  = readTimeout
	WriteTimeout = writeTimeout
)
