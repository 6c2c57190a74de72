package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/extender"
)

// metricsPath is the path that a client needs the right to get.
const metricsPath = "/metrics"

// metricsReviewTimeout is the default scrape timeout of Prometheus: no client waits longer for the API server.
const metricsReviewTimeout = 10 * time.Second

// errNotPermitted is for users that are known, and may not read metrics.
var errNotPermitted = errors.New("the user is not permitted to get " + metricsPath)

// metrics returns the options of the server of /metrics. With --metrics-secure it serves TLS 1.3, and only to clients that the
// API server permits.
func (f *processFlags) metrics() (metricsserver.Options, error) {
	o := metricsserver.Options{BindAddress: address(f.metricsPort)}
	if !f.metricsSecure {
		if f.metricsCertDir != "" {
			return o, errors.New("--metrics-cert-dir needs --metrics-secure")
		}
		return o, nil
	}
	if f.metricsCertDir != "" {
		// The server would replace a missing file with a certificate of its own, and its clients would report that one.
		for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, err := os.Stat(filepath.Join(f.metricsCertDir, name)); err != nil {
				return o, fmt.Errorf("--metrics-cert-dir: %w", err)
			}
		}
	}
	o.SecureServing, o.CertDir, o.FilterProvider = true, f.metricsCertDir, permittedClients
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.NextProtos = tls.VersionTLS13, []string{"http/1.1"}
	}}
	return o, nil
}

// permittedClients returns a filter that passes requests whose bearer token belongs to a user who may get /metrics. It does what
// the filter of controller-runtime does, which would link k8s.io/apiserver with gRPC, OpenTelemetry and CEL.
func permittedClients(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	rights, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	authenticate := extender.Reviewed(func(ctx context.Context, review *authenticationv1.TokenReview) error {
		reviewed, err := tokens.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if review.Status = reviewed.Status; !review.Status.Authenticated {
			return nil
		}
		access, err := rights.SubjectAccessReviews().Create(ctx, metricsAccess(review.Status.User), metav1.CreateOptions{})
		if err == nil && !access.Status.Allowed {
			err = errNotPermitted
		}
		return err
	}, nil)
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ") // RFC 7235: the scheme is case-insensitive
			err := extender.ErrBadToken
			if strings.EqualFold(scheme, "Bearer") && token != "" {
				ctx, cancel := context.WithTimeout(r.Context(), metricsReviewTimeout)
				defer cancel()
				_, err = authenticate(ctx, token)
			}
			switch {
			case err == nil:
				next.ServeHTTP(w, r)
			case errors.Is(err, extender.ErrBadToken):
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, err.Error(), http.StatusUnauthorized)
			case errors.Is(err, errNotPermitted):
				http.Error(w, err.Error(), http.StatusForbidden)
			default:
				log.Error(err, "Cannot review the client of metrics")
				http.Error(w, "cannot review the bearer token; the log of this program has the reason", http.StatusServiceUnavailable)
			}
		}), nil
	}, nil
}

// metricsAccess returns the question whether a user may get /metrics.
func metricsAccess(user authenticationv1.UserInfo) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: metricsPath, Verb: "get"},
	}}
}
