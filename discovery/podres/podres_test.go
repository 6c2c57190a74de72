package podres

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// Functions that encode messages with the library that Protocol Buffers' generated code uses.

func text(number protowire.Number, s string) []byte { return sub(number, []byte(s)) }

func sub(number protowire.Number, parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), all)
}

func number(number protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), n)
}

func packed(number protowire.Number, list ...int64) []byte {
	var all []byte
	for _, n := range list {
		all = protowire.AppendVarint(all, uint64(n))
	}
	return sub(number, all)
}

func nodes(ids ...int64) []byte {
	var all []byte
	for _, id := range ids {
		if id == 0 {
			all = append(all, sub(1)...) // a zero is not encoded
			continue
		}
		all = append(all, sub(1, number(1, uint64(id)))...)
	}
	return all
}

// oneOfEach is a List response with each field, and fields of later versions.
func oneOfEach() []byte {
	return sub(1,
		text(1, "trainer"), text(2, "research"),
		sub(3, // container
			text(1, "main"),
			sub(2, text(1, "nvidia.com/gpu"), text(2, "GPU-1"), text(2, "GPU-2"), sub(3, nodes(0, 8))),
			sub(2, text(1, "vendor/nic"), text(2, "n0")),
			packed(3, 2, 3),
			sub(4, text(1, "memory"), number(2, 1<<40), sub(3, nodes(0))),
			sub(4, text(1, "hugepages-2Mi"), number(2, 4<<20), sub(3, nodes(-1))),
			sub(5, text(2, "claim"), text(3, "research"), sub(4, sub(1, text(1, "cdi")), text(2, "driver"), text(3, "pool"), text(4, "dev"), text(5, "share"))),
			sub(5, text(2, "empty"), text(3, "research")),
			text(99, "from the future"), number(98, 7),
		),
		number(4, 2), number(4, 5), // not packed
		sub(5, text(1, "memory"), number(2, 1<<40), sub(3, nodes(0))),
		protowire.AppendFixed32(protowire.AppendTag(nil, 97, protowire.Fixed32Type), 1),
		protowire.AppendFixed64(protowire.AppendTag(nil, 96, protowire.Fixed64Type), 1),
	)
}

func TestListOfEachField(t *testing.T) {
	got, err := decodeList(oneOfEach())
	if err != nil {
		t.Fatal(err)
	}
	want := []Pod{{
		Namespace: "research", Name: "trainer",
		Containers: []Container{{
			Name: "main",
			Devices: []Devices{
				{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2"}, Topology: Topology{0, 8}},
				{Resource: "vendor/nic", IDs: []string{"n0"}},
			},
			CPUs: []int64{2, 3},
			Memory: []Memory{
				{Type: "memory", Bytes: 1 << 40, Topology: Topology{0}}, {Type: "hugepages-2Mi", Bytes: 4 << 20, Topology: Topology{-1}},
			},
			Claims: []Claim{
				{Namespace: "research", Name: "claim", Driver: "driver", Pool: "pool", Device: "dev"}, {Namespace: "research", Name: "empty"},
			},
		}},
		CPUs:   []int64{2, 5},
		Memory: []Memory{{Type: "memory", Bytes: 1 << 40, Topology: Topology{0}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAllocatableOfEachField(t *testing.T) {
	message := slicesConcat(
		sub(1, text(1, "vendor/x"), text(2, "a"), sub(3, nodes(1))),
		packed(2, 1, 2, 3),
		sub(3, text(1, "memory"), number(2, 5), sub(3, nodes(1))),
	)
	got, err := decodeAllocatable(message)
	if err != nil {
		t.Fatal(err)
	}
	want := &Allocatable{
		Devices: []Devices{{Resource: "vendor/x", IDs: []string{"a"}, Topology: Topology{1}}},
		CPUs:    []int64{1, 2, 3},
		Memory:  []Memory{{Type: "memory", Bytes: 5, Topology: Topology{1}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func slicesConcat(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestTruncatedMessages cuts a message at each byte. A prefix may end at the end of a field and then be valid, but it never has
// anything that the whole message lacks.
func TestTruncatedMessages(t *testing.T) {
	whole := oneOfEach()
	for n := 1; n < len(whole); n++ {
		if _, err := decodeList(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are a valid message", n, len(whole))
		}
	}
}

func TestInvalidMessages(t *testing.T) {
	manyPods := strings.Repeat(string(sub(1, text(1, "p"))), 1_000_000)
	for name, tt := range map[string]struct {
		message []byte
		want    string
	}{
		"a million pods":      {[]byte(manyPods), "more than 4096 pods"},
		"too many CPUs":       {sub(1, sub(3, packed(3, make([]int64, MaxIDs+1)...))), "more than 65536"},
		"too many containers": {sub(1, []byte(strings.Repeat(string(sub(3)), MaxIDs+1))), "more than 65536"},
		"a string as a pod":   {sub(1, number(1, 5)), "wrong type"},
		"a group":             {protowire.AppendTag(nil, 7, protowire.StartGroupType), "wire type 3"},
		"field 0":             {[]byte{0, 0}, "number 0"},
		"field 2^29":          {number(1<<29, 0), "number 536870912"},
		"not UTF-8":           {sub(1, text(1, "\xff")), "UTF-8"},
		"an endless varint":   {[]byte(strings.Repeat("\xff", 20)), "truncated"},
		"a length beyond int": {append(protowire.AppendTag(nil, 1, protowire.BytesType), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "truncated"},
	} {
		if _, err := decodeList(tt.message); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

// FuzzDecode checks that no input makes the decoder fail other than with an error, and that it accepts only what the library's parser
// of fields accepts.
func FuzzDecode(f *testing.F) {
	f.Add(oneOfEach())
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, err := decodeAllocatable(message); err != nil {
			_, _ = decodeList(message)
			return
		}
		for rest := message; len(rest) > 0; {
			_, _, n := protowire.ConsumeField(rest)
			if n < 0 {
				t.Fatalf("accepted what the library rejects: %v", protowire.ParseError(n))
			}
			rest = rest[n:]
		}
	})
}

// serve runs a server that answers each call as given, on a socket in a temporary directory.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	listen(t, socket, answer)
	c := New(socket)
	t.Cleanup(c.Close)
	return c
}

// listen runs a server, and returns a function that stops it.
func listen(t *testing.T, socket string, answer http.HandlerFunc) (stop func()) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: answer, Protocols: &protocols} //nolint:gosec // a test
	go func() { _ = srv.Serve(l) }()
	stop = func() { _ = srv.Close() }
	t.Cleanup(stop)
	return stop
}

// frame returns a message with gRPC's header.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// reply answers with bytes and a status in the trailers.
func reply(body []byte, status string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
		if status != "" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", "too%20many")
		}
	}
}

func TestCall(t *testing.T) {
	var asked *http.Request
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r
		reply(frame(oneOfEach()), "0")(w, r)
	})
	pods, err := c.List(t.Context())
	if err != nil || len(pods) != 1 || pods[0].Name != "trainer" {
		t.Fatalf("pods %v, error %v", pods, err)
	}
	if asked.URL.Path != "/v1.PodResourcesLister/List" || asked.ProtoMajor != 2 || asked.Header.Get("Content-Type") != "application/grpc" ||
		asked.Header.Get("Te") != "trailers" {
		t.Errorf("request %s %s %v is not a gRPC call", asked.Proto, asked.URL.Path, asked.Header)
	}
}

func TestResponsesThatAreNotAMessage(t *testing.T) {
	compressed := frame(oneOfEach())
	compressed[0] = 1
	large := frame(make([]byte, MaxMessageBytes+1))
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"error in trailers": {reply(nil, "8"), "gRPC status 8: too many"},
		"error in headers only": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "12")
			w.Header().Set("Grpc-Message", "unknown%20method")
		}, "gRPC status 12: unknown method"},
		"error after a message":     {reply(frame(oneOfEach()), "13"), "gRPC status 13"},
		"no status":                 {reply(frame(oneOfEach()), ""), "no gRPC status"},
		"no message":                {reply(nil, "0"), "no message"},
		"invalid status":            {reply(nil, "x"), "invalid gRPC status"},
		"compressed":                {reply(compressed, "0"), "compressed"},
		"truncated":                 {reply(frame(oneOfEach())[:40], "0"), "unexpected EOF"},
		"truncated header":          {reply([]byte{0, 0}, "0"), "unexpected EOF"},
		"larger than the limit":     {reply(large, "0"), "more than 16777216"},
		"two messages":              {reply(append(frame(nil), frame(nil)...), "0"), "more than one message"},
		"an HTTP error":             {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "404"},
		"a message that is invalid": {reply(frame([]byte{0xff}), "0"), "List: truncated message"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, tt.answer).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if got, want := Busy(err), name == "error in trailers"; got != want {
				t.Errorf("busy %t, want %t", got, want)
			}
		})
	}
}

// TestTheLimitItselfIsAccepted: a message of exactly the maximum size.
func TestTheLimitItselfIsAccepted(t *testing.T) {
	const overhead = 6 // the tag and the length of the field
	message := sub(99, make([]byte, MaxMessageBytes-overhead))
	if len(message) != MaxMessageBytes {
		t.Fatalf("%d bytes, want %d", len(message), MaxMessageBytes)
	}
	if _, err := serve(t, reply(frame(message), "0")).List(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTheKubeletRestarts replaces the server on the socket.
func TestTheKubeletRestarts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	c := New(socket)
	defer c.Close()
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("error %v without a socket, want one that names it", err)
	}
	for range 2 {
		stop := listen(t, socket, reply(frame(oneOfEach()), "0"))
		if pods, err := c.List(t.Context()); err != nil || len(pods) != 1 {
			t.Fatalf("pods %v, error %v", pods, err)
		}
		stop()
		if _, err := c.List(t.Context()); err == nil {
			t.Error("no error while the server is away")
		}
	}
}

func TestCanceledCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
