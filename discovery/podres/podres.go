// Package podres reads the kubelet's pod resources API: which CPUs, memory and devices of a node the kubelet can give to containers
// exclusively, and which containers hold them.
//
// The API is gRPC over a Unix socket (KEP-606, KEP-2043; k8s.io/kubelet/pkg/apis/podresources/v1). Two calls with empty requests need
// neither the gRPC library nor generated messages, which would more than double the program that runs on every node: net/http speaks
// HTTP/2, and a few messages are decoded here. Unknown fields are skipped, as the format requires.
package podres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DefaultSocket is the path of the kubelet's socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// MaxMessageBytes is the maximum size of a response. It is the kubelet's own limit for messages that its clients receive.
	MaxMessageBytes = 16 << 20
	// MaxPods is the maximum number of pods in a response. Kubelets run 110 by default; large nodes are configured with up to 1,000.
	MaxPods = 4096
	// MaxIDs is the maximum number of CPUs, devices, memory blocks, their groups and their NUMA nodes in a response: each device that is
	// listed alone counts three times. A machine has hundreds of each; plugins that divide devices into shares have thousands.
	MaxIDs = 65536

	// callTimeout is the timeout of one call. The kubelet answers within milliseconds from memory.
	callTimeout = 10 * time.Second
	// maxErrorBytes is the maximum size of the message of an error that is reported.
	maxErrorBytes = 1 << 10
	// frameHeader is the size of the header of a gRPC message: a byte for compression and the length.
	frameHeader = 5
)

// Topology holds the ids of the NUMA nodes that a resource is near to, as the kubelet lists them: -1 means none. Nil: the kubelet lists
// no topology.
type Topology []int64

// Devices are devices of one resource with the same topology.
type Devices struct {
	Resource string // such as nvidia.com/gpu
	IDs      []string
	Topology Topology
}

// Memory is a block of memory or huge pages.
type Memory struct {
	Type     string // memory, hugepages-2Mi, ...
	Bytes    uint64
	Topology Topology
}

// Allocatable is what the kubelet can give to containers exclusively: CPUs if its CPU manager is static, memory if its memory manager is
// Static, and all healthy devices.
type Allocatable struct {
	Devices []Devices
	CPUs    []int64
	Memory  []Memory
}

// Claim is a device of a dynamic resource claim (DRA) that a container uses.
type Claim struct {
	Namespace, Name      string
	Driver, Pool, Device string
}

// Container is what a container holds. CPUs are exclusive ones only, since Kubernetes 1.23.
type Container struct {
	Name    string
	Devices []Devices
	CPUs    []int64
	Memory  []Memory
	Claims  []Claim
}

// Pod is what a pod holds. CPUs and Memory are those of the pod as a whole (Kubernetes 1.37), which include those of its containers.
type Pod struct {
	Namespace, Name string
	Containers      []Container
	CPUs            []int64
	Memory          []Memory
}

// StatusError is an error response of the kubelet. Code is a gRPC status code.
type StatusError struct {
	Code    int
	Message string
}

// codeResourceExhausted is the gRPC status of a call that exceeds the kubelet's rate limit: 100 calls a second of all clients together.
const codeResourceExhausted = 8

func (e *StatusError) Error() string {
	return fmt.Sprintf("the kubelet answered with gRPC status %d: %s", e.Code, e.Message)
}

// Busy reports whether an error is the kubelet's rate limit, which other clients may have exhausted.
func Busy(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == codeResourceExhausted
}

// Client calls the kubelet. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	socket string
}

// New returns a client for the socket with this path. It does not connect yet, and it connects again after the kubelet has restarted.
func New(socket string) *Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket}
}

// Close closes the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// List returns what the containers of active pods hold. Init containers are not included.
func (c *Client) List(ctx context.Context) ([]Pod, error) {
	message, err := c.call(ctx, "List")
	if err != nil {
		return nil, err
	}
	pods, err := decodeList(message)
	if err != nil {
		return nil, fmt.Errorf("kubelet socket %s: List: %w", c.socket, err)
	}
	return pods, nil
}

// Allocatable returns what containers can hold.
func (c *Client) Allocatable(ctx context.Context) (*Allocatable, error) {
	const method = "GetAllocatableResources"
	message, err := c.call(ctx, method)
	if err != nil {
		return nil, err
	}
	a, err := decodeAllocatable(message)
	if err != nil {
		return nil, fmt.Errorf("kubelet socket %s: %s: %w", c.socket, method, err)
	}
	return a, nil
}

// call sends an empty request and returns the message of the response.
func (c *Client) call(ctx context.Context, method string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	message, err := c.send(ctx, method)
	if err != nil {
		var address *net.OpError
		if errors.As(err, &address) { // names the socket
			err = address
			return nil, fmt.Errorf("kubelet's pod resources: %w", err)
		}
		return nil, fmt.Errorf("kubelet socket %s: %s: %w", c.socket, method, err)
	}
	return message, nil
}

func (c *Client) send(ctx context.Context, method string) ([]byte, error) {
	body := make([]byte, frameHeader) // not compressed, 0 bytes
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kubelet/v1.PodResourcesLister/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", res.Status)
	}
	// A response with an error and without a message has its status in the headers: it has no trailers.
	if err := status(res.Header); err != nil {
		return nil, err
	}
	message, err := readFrame(res.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	noMessage := err != nil
	if n, err := io.CopyN(io.Discard, res.Body, 1); n > 0 {
		return nil, errors.New("more than one message in the response")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if res.Trailer.Get(statusHeader) == "" && res.Header.Get(statusHeader) == "" {
		return nil, errors.New("the response has no gRPC status; it was interrupted")
	}
	if err := status(res.Trailer); err != nil {
		return nil, err
	}
	if noMessage {
		return nil, errors.New("the response has no message")
	}
	return message, nil
}

const statusHeader = "Grpc-Status"

// status returns the error in headers or trailers; nil if there is none.
func status(h http.Header) error {
	text := h.Get(statusHeader)
	if text == "" || text == "0" {
		return nil
	}
	code, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("invalid gRPC status %.20q", text)
	}
	message := h.Get("Grpc-Message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}
	return &StatusError{Code: code, Message: message[:min(len(message), maxErrorBytes)]}
}

// readFrame reads one message. The error is io.EOF if there is none.
func readFrame(r io.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	if header[0] != 0 {
		return nil, errors.New("the message is compressed, which was not requested")
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > MaxMessageBytes {
		return nil, fmt.Errorf("the message has %d bytes, more than %d", size, MaxMessageBytes)
	}
	// Not allocated by its size alone, which may be wrong.
	message, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, err
	}
	if len(message) < int(size) {
		return nil, fmt.Errorf("the message has %d of %d bytes: %w", len(message), size, io.ErrUnexpectedEOF)
	}
	return message, nil
}
