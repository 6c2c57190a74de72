package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities returns Mozilla's certificate authorities as PEM. They come with a Go module, so that the version in go.sum
// says exactly which they are. Those that are trusted only up to a date are left out: PEM cannot say so.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a bytes.Buffer takes everything
		}
	}
	return out.Bytes()
}
