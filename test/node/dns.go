//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// clusterDomain is the suffix of the names of Services.
const clusterDomain = "cluster.local"

// serveDNS resolves the names of Services like a cluster's DNS, and no other names, until the context ends.
func serveDNS(ctx context.Context, client kubernetes.Interface, address string) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(address, "53"))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 512) // longest message over UDP (RFC 1035, 4.2.1)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if reply := answer(ctx, client, buffer[:n]); err == nil && reply != nil {
				_, _ = conn.WriteTo(reply, from) // a client without a response retries
			}
		}
	}()
	return nil
}

// The used parts of a message (RFC 1035, 4.1).
const (
	dnsHeader    = 12
	typeA        = 1
	nameError    = 3
	flagsReply   = 0x8480 // a response, authoritative, recursion available
	pointToQuery = 0xc00c // a pointer to the name in the question
)

// answer returns the response to a question; nil if it is invalid.
func answer(ctx context.Context, client kubernetes.Interface, message []byte) []byte {
	if len(message) < dnsHeader {
		return nil
	}
	name, end := question(message[dnsHeader:])
	if end == 0 || dnsHeader+end+4 > len(message) {
		return nil
	}
	kind := binary.BigEndian.Uint16(message[dnsHeader+end:])
	address := serviceAddress(ctx, client, name)

	reply := make([]byte, dnsHeader, len(message)+16)
	copy(reply, message[:2])
	flags := uint16(flagsReply)
	if address == nil {
		flags |= nameError
	}
	binary.BigEndian.PutUint16(reply[2:], flags)
	binary.BigEndian.PutUint16(reply[4:], 1)
	reply = append(reply, message[dnsHeader:dnsHeader+end+4]...)
	if address == nil || kind != typeA {
		return reply
	}
	binary.BigEndian.PutUint16(reply[6:], 1)
	for _, v := range []uint16{pointToQuery, typeA, 1, 0, 5, net.IPv4len} { // name, type, class, 5 seconds to live, length
		reply = binary.BigEndian.AppendUint16(reply, v)
	}
	return append(reply, address...)
}

// question returns the name in a question, and its end; 0 if it is invalid.
func question(data []byte) (name string, end int) {
	var labels []string
	for end < len(data) {
		n := int(data[end])
		end++
		if n == 0 {
			return strings.Join(labels, "."), end
		}
		if end+n > len(data) {
			return "", 0
		}
		labels = append(labels, string(data[end:end+n]))
		end += n
	}
	return "", 0
}

// serviceAddress returns the address of the Service with that name; nil if it does not exist.
func serviceAddress(ctx context.Context, client kubernetes.Interface, name string) net.IP {
	name, ok := strings.CutSuffix(strings.ToLower(name), ".svc."+clusterDomain)
	service, namespace, both := strings.Cut(name, ".")
	if !ok || !both || strings.Contains(namespace, ".") {
		return nil
	}
	s, err := client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return net.ParseIP(s.Spec.ClusterIP).To4()
}
