package intake

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

const (
	// maxConns is the maximum number of open connections: some tens of kilobytes each. API servers and schedulers need a few each.
	maxConns = 1024
	// maxPerPeer is the maximum number of open connections of one address. Several API servers may share one, and one that does
	// not speak HTTP/2 has a connection for each request under way.
	maxPerPeer = 256
)

// Listener bounds the number of connections, in all and of one peer. A new connection takes the place of another one: the oldest
// of those that have never had a request answered, else the one that had none for the longest. A connection with a request that
// has arrived is never closed. Safe for concurrent use.
type Listener struct {
	net.Listener

	mu    sync.Mutex
	conns map[*conn]struct{}
	peers map[string]int
	clock uint64 // counts connections and answers
}

// Listen returns a Listener for a server whose ConnContext is ConnContext.
func Listen(l net.Listener) *Listener {
	return &Listener{Listener: l, conns: map[*conn]struct{}{}, peers: map[string]int{}}
}

// conn is an open connection.
type conn struct {
	net.Conn
	listener *Listener
	peer     string

	began, answered uint64 // answered is 0 before the first answer
	busy            int    // requests that have arrived
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, listener: l, peer: host(raw.RemoteAddr().String())}
		if l.admit(c) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// admit makes room for a connection, and reports whether there is any.
func (l *Listener) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	peer := c.peer
	if l.peers[peer] < maxPerPeer && len(l.conns) >= maxConns {
		for other, n := range l.peers {
			if n > l.peers[peer] {
				peer = other
			}
		}
	}
	if l.peers[peer] >= maxPerPeer || len(l.conns) >= maxConns {
		victim := l.victim(peer)
		if victim == nil {
			return false
		}
		l.remove(victim)
		_ = victim.Conn.Close()
	}
	l.clock++
	c.began = l.clock
	l.conns[c] = struct{}{}
	l.peers[c.peer]++
	return true
}

// victim returns the connection of a peer that is least needed, nil if all are.
func (l *Listener) victim(peer string) (worst *conn) {
	for c := range l.conns {
		if c.peer != peer || c.busy > 0 {
			continue
		}
		if worst == nil || c.answered < worst.answered || c.answered == worst.answered && c.began < worst.began {
			worst = c
		}
	}
	return worst
}

// remove forgets a connection. It needs the lock.
func (l *Listener) remove(c *conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if l.peers[c.peer]--; l.peers[c.peer] == 0 {
		delete(l.peers, c.peer)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// ConnContext lets Arrived find the connection of a request. It is for http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Arrived notes that a request has arrived in full, and answered that it has been answered. A request whose connection is not of
// a Listener is ignored.
func Arrived(ctx context.Context) (answered func()) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return func() {}
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.busy--
		l.clock++
		c.answered = l.clock
	}
}
