package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities returns Mozilla's certificate authorities as PEM. They come from a Go module, so that go.sum pins them. Authorities
// that are only trusted up to a date are omitted, since PEM cannot express this.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a bytes.Buffer never fails
		}
	}
	return out.Bytes()
}
