package intake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/assay-project/assay/internal/intake"
)

const mebi = 1 << 20

// slowly is a request whose body the test sends. Its ResponseWriter supports deadlines.
type slowly struct {
	*httptest.ResponseRecorder
	r    *http.Request
	body *io.PipeWriter
}

func (s *slowly) SetReadDeadline(time.Time) error {
	return s.body.CloseWithError(context.DeadlineExceeded)
}

func newRequest(peer string, size int64) *slowly {
	body, w := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.RemoteAddr, r.ContentLength = peer+":1", size
	return &slowly{httptest.NewRecorder(), r, w}
}

// read reads the body and returns the result.
func (s *slowly) read(b *intake.Bodies) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, release, err := b.Read(context.Background(), s, s.r, nil)
		if err == nil {
			release()
		}
		done <- err
	}()
	return done
}

func size(n int64) int64 { return n }

// TestSlowBodiesMakeRoom checks that slow bodies of the address with the most memory are canceled, oldest first, and none if there
// is enough memory.
func TestSlowBodiesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.NewBodies(mebi, mebi, size)
		begin := func(peer string) (*slowly, <-chan error) {
			s := newRequest(peer, 300<<10)
			done := s.read(b)
			_, _ = s.body.Write([]byte("{")) // it now holds a chunk
			time.Sleep(time.Second)
			return s, done
		}
		other, othersDone := begin("10.0.0.1")
		first, firstDone := begin("10.0.0.2")
		second, secondDone := begin("10.0.0.2")
		for name, done := range map[string]<-chan error{"other": othersDone, "first": firstDone, "second": secondDone} {
			select {
			case err := <-done:
				t.Errorf("%s was ended although there was room: %v", name, err)
			default:
			}
		}
		quick := newRequest("10.0.0.3", 400<<10)
		quickDone := quick.read(b)
		go func() { _, _ = quick.body.Write(make([]byte, 400<<10)) }()
		if err := <-quickDone; err != nil {
			t.Errorf("the quick one: %v", err)
		}
		if err := <-firstDone; !errors.Is(err, intake.ErrBusy) {
			t.Errorf("the first of the address that holds most: %v", err)
		}
		for name, s := range map[string]*slowly{"other": other, "second": second} {
			go func() { _, _ = s.body.Write(make([]byte, 300<<10-1)) }()
			if err := <-map[string]<-chan error{"other": othersDone, "second": secondDone}[name]; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = first.body.Close()
	})
}

// TestBodiesThatArriveAreNotEnded checks that under legitimate load, requests wait for memory until their context ends.
func TestBodiesThatArriveAreNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := intake.NewBodies(mebi, mebi, size)
		held := newRequest("10.0.0.1", mebi-64<<10)
		go func() { _, _ = held.body.Write(make([]byte, mebi-64<<10)) }()
		_, release, err := b.Read(t.Context(), held, held.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		waiting := newRequest("10.0.0.1", 512<<10)
		done := waiting.read(b)
		go func() { _, _ = waiting.body.Write(make([]byte, 512<<10)) }()
		late := newRequest("10.0.0.2", 512<<10)
		go func() { _, _ = late.body.Write(make([]byte, 512<<10)) }()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, _, err := b.Read(ctx, late, late.r, nil); !errors.Is(err, intake.ErrBusy) {
			t.Errorf("without memory: %v", err)
		}
		_ = late.body.Close()
		release()
		if err := <-done; err != nil {
			t.Errorf("the one that waited: %v", err)
		}
	})
}

func TestBodiesThatAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		length int64
		sent   int
		end    error
		want   error
	}{
		"whole":           {10, 10, nil, nil},
		"empty":           {0, 0, nil, nil},
		"cut short":       {10, 5, nil, intake.ErrCutShort},
		"unknown length":  {-1, 3000, nil, nil},
		"cut in a chunk":  {-1, 3000, io.ErrUnexpectedEOF, intake.ErrCutShort},
		"too large":       {9000, 0, nil, intake.ErrTooLarge},
		"endless":         {-1, 9000, nil, intake.ErrTooLarge},
		"the largest one": {-1, 8000, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := intake.NewBodies(mebi, 8000, size)
			s := newRequest("10.0.0.1", test.length)
			go func() {
				_, _ = s.body.Write(make([]byte, test.sent))
				_ = s.body.CloseWithError(test.end)
			}()
			body, release, err := b.Read(t.Context(), s, s.r, nil)
			if !errors.Is(err, test.want) || err == nil && len(body) != test.sent {
				t.Fatalf("%d bytes, %v", len(body), err)
			}
			if err == nil {
				release()
			}
		})
	}
}

// dialed is a listener for connections that the test creates.
type dialed chan net.Conn

func (d dialed) Accept() (net.Conn, error) { return <-d, nil }
func (d dialed) Close() error              { return nil }
func (d dialed) Addr() net.Addr            { return nil }

// from is a connection that records whether it was closed.
type from struct {
	net.Conn
	peer   string
	closed bool
}

func (c *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.peer), Port: 1} }
func (c *from) Close() error         { c.closed = true; return nil }

// TestSilentConnectionsGiveWay checks that a new connection replaces a silent one and is not rejected, and that used connections
// stay open.
func TestSilentConnectionsGiveWay(t *testing.T) {
	d := make(dialed, 1)
	l := intake.Listen(d)
	open := func(peer string) (*from, func() func()) {
		c := &from{peer: peer}
		d <- c
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ctx := intake.ConnContext(t.Context(), accepted)
		return c, func() func() { return intake.Arrived(ctx) }
	}
	used, arrived := open("10.0.0.1")
	arrived()()
	busy, arrived := open("10.0.0.1")
	answered := arrived()
	other, _ := open("10.0.0.2")
	var silent []*from
	for range 1000 {
		c, _ := open("10.0.0.1")
		silent = append(silent, c)
	}
	if used.closed || busy.closed || other.closed {
		t.Errorf("closed: used %v, busy %v, of another address %v", used.closed, busy.closed, other.closed)
	}
	left := 0
	for i, c := range silent {
		if !c.closed {
			left++
		} else if i > 1000-254 {
			t.Errorf("connection %d was closed before older ones", i)
		}
	}
	if left != 254 {
		t.Errorf("%d of one address are open", left+2)
	}
	answered()
	for i := range 1000 {
		open(fmt.Sprintf("10.0.%d.%d", 1+i/100, i%100))
	}
	if used.closed || busy.closed {
		t.Errorf("many addresses: closed: used %v, busy %v", used.closed, busy.closed)
	}
}
