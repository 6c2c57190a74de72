// Package metricsaccess authorizes requests for metrics with the API server.
package metricsaccess

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/extender"
)

// path is the non-resource URL that a client must be allowed to get.
const path = "/metrics"

// ProfilesPath is the non-resource URL that a client must be allowed to get for all profiles: they contain what is in memory, which a
// client that may read metrics must not see.
const ProfilesPath = "/debug/pprof"

// reviewTimeout is the default scrape timeout of Prometheus.
const reviewTimeout = 10 * time.Second

// errNotPermitted is returned for authenticated users who may not read metrics.
var errNotPermitted = errors.New("the user is not permitted to")

// Filter returns a filter that accepts requests whose bearer token belongs to a user who may get /metrics. It behaves like the
// filter of controller-runtime, which would add k8s.io/apiserver with gRPC, OpenTelemetry and CEL to the program.
func Filter(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	rights, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	permitted := func(path string) extender.Authenticator {
		return extender.Reviewed(func(ctx context.Context, review *authenticationv1.TokenReview) error {
			reviewed, err := tokens.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if review.Status = reviewed.Status; !review.Status.Authenticated {
				return nil
			}
			granted, err := rights.SubjectAccessReviews().Create(ctx, access(review.Status.User, path), metav1.CreateOptions{})
			if err == nil && !granted.Status.Allowed {
				err = fmt.Errorf("%w get %s", errNotPermitted, path)
			}
			return err
		}, nil)
	}
	metrics, profiles := permitted(path), permitted(ProfilesPath)
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ") // RFC 7235: the scheme is case-insensitive
			authenticate, err := metrics, extender.ErrBadToken
			if strings.HasPrefix(r.URL.Path, ProfilesPath) {
				authenticate = profiles
			}
			if strings.EqualFold(scheme, "Bearer") && token != "" {
				ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
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

// access returns a SubjectAccessReview for getting /metrics.
func access(user authenticationv1.UserInfo, path string) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
}
