package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	admissionregistration "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/certs"
	"github.com/assay-project/assay/webhook"
)

// serviceGrace is the maximum time to wait until the Service routes to a replica before the CA is written to the webhook
// configurations. It is written after this time in any case, because a network policy may block the replica's own connections to
// the Service but not those of the API server.
const serviceGrace = time.Minute

// reachTimeout is the timeout of one connection attempt. Certificate maintenance continues between attempts.
const reachTimeout = 5 * time.Second

// certificateFlags define the serving certificate and the webhook configurations that contain its CA.
type certificateFlags struct {
	certDir              string
	secret, service, url string
	configuration        string
	servicePort          int32
	failurePolicy        string
	timeout              int32
	namespaces           string
	life, authorityLife  time.Duration
}

func (f *certificateFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.certDir, "cert-dir", "", "directory of tls.crt and tls.key that another program renews, such as cert-manager, which then also writes the webhook configurations; "+
		"empty: this program creates certificates and writes the configurations")
	flags.StringVar(&f.secret, "cert-secret", "assay-webhook-cert", "Secret in --namespace in which replicas share their certificate; it must exist, and may be empty")
	flags.DurationVar(&f.life, "cert-life", certs.DefaultLife, "validity of certificates that this program creates; they are replaced after two thirds of it")
	flags.DurationVar(&f.authorityLife, "ca-life", 0, "validity of the CA that signs them; 0: four times --cert-life")
	flags.StringVar(&f.service, "service", "assay-webhook", "Service in --namespace of the webhook")
	flags.StringVar(&f.configuration, "configuration", webhook.ConfigurationName, "name of the validating and the mutating webhook configuration for Assay's own kinds; they must exist")
	flags.Int32Var(&f.servicePort, "service-port", 443, "port of the Service")
	flags.StringVar(&f.url, "webhook-url", "", "URL at which the API server reaches the webhook instead of the Service, such as https://10.0.0.1:9443")
	flags.StringVar(&f.failurePolicy, "failure-policy", "Ignore", "failure policy of the webhook configurations while no webhook answers: Ignore accepts rules, "+
		"and the controller reports their errors; Fail rejects them")
	flags.Int32Var(&f.timeout, "webhook-timeout", webhook.DefaultTimeoutSeconds, "seconds that the API server waits for the webhook")
	flags.StringVar(&f.namespaces, "webhook-namespaces", "", "label selector, as JSON or YAML, of the namespaces whose pods and workloads are reviewed; empty: all")
}

func (f *certificateFlags) check() error {
	if f.failurePolicy != "Ignore" && f.failurePolicy != "Fail" {
		return fmt.Errorf("--failure-policy is %q; it must be Ignore or Fail", f.failurePolicy)
	}
	if f.timeout < 1 || f.timeout > maxTimeoutSeconds {
		return fmt.Errorf("--webhook-timeout is %d; it must be between 1 and %d", f.timeout, maxTimeoutSeconds)
	}
	if _, err := f.selector(); err != nil {
		return err
	}
	if f.url != "" {
		if u, err := url.Parse(f.url); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" {
			return fmt.Errorf("--webhook-url is %q; it must be https://HOST:PORT", f.url)
		}
	}
	return nil
}

// maxTimeoutSeconds is the maximum timeout of a webhook that the API server accepts.
const maxTimeoutSeconds = 30

// selector returns the selector of --webhook-namespaces, nil if it is empty.
func (f *certificateFlags) selector() (*metav1.LabelSelector, error) {
	if f.namespaces == "" {
		return nil, nil
	}
	var selector metav1.LabelSelector
	err := yaml.UnmarshalStrict([]byte(f.namespaces), &selector)
	if err == nil {
		_, err = metav1.LabelSelectorAsSelector(&selector)
	}
	if err != nil {
		return nil, fmt.Errorf("--webhook-namespaces: %w", err)
	}
	return &selector, nil
}

// keeper is the part of package certs that the webhook needs.
type keeper interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Status() (certs.Status, bool)
	Ready() error
	Run(context.Context) error
}

// newKeeper returns the keeper of the certificate. answers reports whether this replica can answer reviews.
func (f *certificateFlags) newKeeper(namespace string, reviews schedulingFlags, client kubernetes.Interface, log logr.Logger, answers func(context.Context) error) (keeper, error) {
	report := func(err error) {
		log.Error(err, "Failed to renew or publish the serving certificate; retrying")
	}
	if f.certDir != "" {
		return certs.NewMounted(filepath.Join(f.certDir, corev1.TLSCertKey), filepath.Join(f.certDir, corev1.TLSPrivateKeyKey), nil, report)
	}
	namespaces, err := f.selector()
	if err != nil {
		return nil, err
	}
	p := &publisher{
		flags: f, namespace: namespace, answers: answers, log: log,
		client: client.AdmissionregistrationV1(),
		config: webhook.ConfigurationOptions{
			Name: f.configuration, Namespace: namespace, Service: f.service, Port: f.servicePort, URL: f.url, Fail: f.failurePolicy == "Fail",
			Scheduling: reviews.scheduling, Selectors: reviews.selectors, TimeoutSeconds: f.timeout, Namespaces: namespaces,
		},
	}
	o := certs.Options{
		Secrets: client.CoreV1().Secrets(namespace), Name: f.secret,
		Life: f.life, AuthorityLife: cmp.Or(f.authorityLife, 4*f.life),
		Settle:  min(certs.DefaultSettle, f.life/4), // scaled down for a CA with a lifetime of seconds
		Publish: p.publish, Report: report,
	}
	o.DNSNames, o.IPs = f.names(namespace)
	return certs.NewSelfSigned(o)
}

// names returns the DNS names and IP addresses under which the API server may call the webhook.
func (f *certificateFlags) names(namespace string) (dns []string, ips []net.IP) {
	if f.url != "" {
		u, _ := url.Parse(f.url) // validated before
		if ip := net.ParseIP(u.Hostname()); ip != nil {
			return nil, []net.IP{ip}
		}
		return []string{u.Hostname()}, nil
	}
	name := f.service + "." + namespace + ".svc"
	return []string{name, f.service + "." + namespace, name + ".cluster.local"}, nil
}

// publisher writes the CA to the webhook configurations once the API server can use it.
type publisher struct {
	flags     *certificateFlags
	namespace string
	client    admissionregistration.AdmissionregistrationV1Interface
	config    webhook.ConfigurationOptions
	answers   func(context.Context) error
	log       logr.Logger

	since     time.Time // time since which the replica answers
	installed bool
	bundle    []byte              // that was written last
	written   webhook.Generations // of the configurations after that
}

// publish runs in every pass of the keeper. Passes do not overlap.
func (p *publisher) publish(ctx context.Context, bundle []byte) error {
	if !p.installed {
		if err := p.reachable(ctx, bundle); err != nil {
			return err
		}
	}
	config := p.config
	config.CABundle = bundle
	written, err := webhook.Install(ctx, p.client.ValidatingWebhookConfigurations(), p.client.MutatingWebhookConfigurations(), config)
	p.logRepairs(bundle, written)
	if err != nil {
		return err
	}
	if !p.installed {
		p.installed = true
		p.log.Info("Registered webhook", "configuration", p.flags.configuration, "failurePolicy", p.flags.failurePolicy)
	}
	return nil
}

// logRepairs logs which configurations had other webhooks than this replica wrote: another client has changed them, or the CA of another
// replica was in them.
func (p *publisher) logRepairs(bundle []byte, written webhook.Generations) {
	for name, generation := range written {
		if before := p.written[name]; before != 0 && generation != before && bytes.Equal(bundle, p.bundle) {
			p.log.Info("Repaired webhook configuration: another client had changed its webhooks", "configuration", name, "generation", generation)
		}
	}
	p.bundle, p.written = bundle, written
}

// reachable connects to this replica directly, and then through the Service as the API server does: it takes seconds until a
// Service routes to a ready replica, and in this time applying a rule would fail.
func (p *publisher) reachable(ctx context.Context, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := p.answers(ctx); err != nil {
		return fmt.Errorf("%w: %w", certs.ErrNotYet, err)
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	err := p.throughService(ctx, bundle)
	if err != nil && time.Since(p.since) < serviceGrace {
		return fmt.Errorf("%w: %w", certs.ErrNotYet, err)
	}
	if err != nil {
		p.log.Error(err, "Cannot reach the webhook through its Service; registering it anyway")
	}
	return nil
}

// throughService requests the health endpoint at the webhook's public address.
func (p *publisher) throughService(ctx context.Context, bundle []byte) error {
	base := p.flags.url
	if base == "" {
		base = fmt.Sprintf("https://%s.%s.svc:%d", p.flags.service, p.namespace, p.flags.servicePort)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+webhook.HealthPath, nil)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	transport := &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
	}
	resp, err := transport.RoundTrip(req)
	if alert := tls.AlertError(0); errors.As(err, &alert) {
		return nil // reachable: it requires a client certificate that only the API server has
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
