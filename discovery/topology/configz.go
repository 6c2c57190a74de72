package topology

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// configzTimeout is the timeout of a request to a kubelet, which asks the API server whether the client may read.
const configzTimeout = 30 * time.Second

// Configz is a kubelet's endpoint /configz, which has its effective settings: those of files and of flags. It is for nodes whose
// configuration file is not known. The right `get` on `nodes/configz` covers it from Kubernetes 1.33 (KEP-2862).
type Configz struct {
	// URL is the address, such as https://10.0.0.7:10250/configz.
	URL string
	// TokenFile is a file with the token to send.
	TokenFile string
	// CAFile is a PEM file with the certificates that the kubelet's certificate is verified with.
	CAFile string
	// Insecure disables the verification: the token is then sent to any program that has the address.
	Insecure bool
}

// Read returns the settings of a kubelet. It reads the files each time.
func (c *Configz) Read(ctx context.Context) (*Kubelet, error) {
	ctx, cancel := context.WithTimeout(ctx, configzTimeout)
	defer cancel()
	k, err := c.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("kubelet's configuration: %w", err)
	}
	return k, k.check()
}

func (c *Configz) read(ctx context.Context) (*Kubelet, error) {
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure} //nolint:gosec // requested by the user
	if !c.Insecure {
		ca, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authority: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("certificate authority: %s contains no PEM certificate", c.CAFile)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := &http.Client{
		// A connection of its own, which is used once. No proxy: the kubelet is on this node.
		Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true},
		// Another server must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			err = fmt.Errorf("%w: set serverTLSBootstrap of the kubelet and approve its certificate, or read its configuration file", err)
		}
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKubeletBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.URL, err)
	}
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s: the kubelet does not accept the token", c.URL)
	case res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s: access denied; the ServiceAccount needs get on nodes/configz, which kubelets check from Kubernetes 1.33", c.URL)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: HTTP status %s", c.URL, res.Status)
	case len(body) > maxKubeletBytes:
		return nil, fmt.Errorf("%s has more than %d bytes", c.URL, maxKubeletBytes)
	}
	k, err := ParseConfigz(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.URL, err)
	}
	return k, nil
}

// ParseConfigz returns the settings in an answer of the endpoint.
func ParseConfigz(body []byte) (*Kubelet, error) {
	var answer struct {
		Config *kubeletFile `yaml:"kubeletconfig"`
	}
	if err := yaml.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if answer.Config == nil {
		return nil, errors.New("the answer has no kubeletconfig")
	}
	k := DefaultKubelet()
	return &k, k.override(answer.Config)
}
