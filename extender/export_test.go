package extender

import (
	"context"
	"net"
)

// Serve is Run with a listener of the test's own.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.serve(ctx, l) }

// The limits of time, for tests of clients that exceed them.
const (
	ReadTimeout  = readTimeout
	WriteTimeout = writeTimeout
)
