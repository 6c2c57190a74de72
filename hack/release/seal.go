package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files for the verification of the others.
const (
	provenanceFile = "provenance.json"          // included in the checksums
	sumsFile       = "SHA256SUMS"               // checksums of all files except the following ones
	signatureFile  = "SHA256SUMS.sig"           // in cosign's format: base64 of an ASN.1 ECDSA signature
	envelopeFile   = "provenance.intoto.jsonl"  // the provenance in a signed envelope, for tools that require one
	bundleFile     = "SHA256SUMS.sigstore.json" // the keyless signature, which the workflow adds; only cosign verifies it
)

// seal adds provenance and checksums to the files of the release, and signs them if there is a key.
func (r *release) seal(key *ecdsa.PrivateKey) error {
	s, err := r.provenance()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := r.write(provenanceFile, text); err != nil {
		return err
	}
	sums, err := sumAll(r.out)
	if err != nil {
		return err
	}
	if err := r.write(sumsFile, sums); err != nil {
		return err
	}
	if key == nil {
		return nil
	}
	signature, err := sign(key, sums)
	if err != nil {
		return err
	}
	if err := r.write(signatureFile, []byte(signature+"\n")); err != nil {
		return err
	}
	line, err := seal(key, text)
	if err != nil {
		return err
	}
	return r.write(envelopeFile, line)
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// list returns the sorted names of all files with checksums.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if !slices.Contains([]string{sumsFile, signatureFile, envelopeFile, bundleFile}, entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// sumAll returns checksums in the format of `sha256sum -c`.
func sumAll(dir string) ([]byte, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, name := range names {
		digest, err := sum(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s  %s\n", digest, name)
	}
	return b.Bytes(), nil
}

// sum returns the SHA-256 of a file in hexadecimal.
func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sign signs as cosign and `openssl dgst -sha256 -sign` do. The nonce is derived from the key and the data (RFC 6979), so that the
// same release has the same signature.
func sign(key *ecdsa.PrivateKey, data []byte) (string, error) {
	digest := sha256.Sum256(data)
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

func signed(key *ecdsa.PublicKey, data []byte, signature string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(signature))
	digest := sha256.Sum256(data)
	return err == nil && ecdsa.VerifyASN1(key, digest[:], raw)
}

// envelope is a DSSE envelope (github.com/secure-systems-lab/dsse), the standard format of attestations.
type envelope struct {
	PayloadType string              `json:"payloadType"`
	Payload     []byte              `json:"payload"` // base64 in JSON
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// encoding returns the signed content of an envelope.
func encoding(payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

func seal(key *ecdsa.PrivateKey, payload []byte) ([]byte, error) {
	signature, err := sign(key, encoding(payload))
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(envelope{payloadType, payload, []envelopeSignature{{"", signature}}})
	return append(line, '\n'), err
}

// readPrivateKey reads a key in PKCS #8 or openssl's EC PRIVATE KEY. For a key with a passphrase, use openssl and a pipe.
func readPrivateKey(path string) (*ecdsa.PrivateKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	switch block.Type {
	case "PRIVATE KEY":
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
			return key, nil
		}
	case "EC PRIVATE KEY":
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if key.Curve == elliptic.P256() {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: invalid key type %q: use an ECDSA key on P-256 without a passphrase, see docs/release.md", path, block.Type)
}

func readPublicKey(path string) (*ecdsa.PublicKey, error) {
	block, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	if block.Type == "PUBLIC KEY" {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if key, ok := key.(*ecdsa.PublicKey); ok && key.Curve == elliptic.P256() {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: invalid key type %q: use a public ECDSA key on P-256", path, block.Type)
}

// readPEM returns the first block other than EC PARAMETERS, which older versions of openssl write before a key.
func readPEM(path string) (*pem.Block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		switch {
		case block == nil:
			return nil, errors.New(path + ": there is no key in PEM")
		case block.Type != "EC PARAMETERS":
			return block, nil
		}
	}
}
