package extender

import (
	"context"
	"io"
	"net"
)

// Serve is Run with a listener of the test's own.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l) }

// Complaints is what net/http writes its complaints to.
func Complaints(refused func(from string, why error), report func(error)) io.Writer {
	return complaints{refused, report}
}

// The limits of time, for tests of clients that exceed them.
const (
	ReadTimeout  = readTimeout
	WriteTimeout = writeTimeout
)
