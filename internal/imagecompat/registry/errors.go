package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// explain returns an error that says what was not possible, at which host, and what to do, without text of the registry.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s at %s: %w", what, c.guard.registry, c.reason(ctx, err))
}

func (c *Client) reason(ctx context.Context, err error) error {
	var (
		invalid   *InvalidError
		refused   *RefusedError
		wait      *WaitError
		response  *errcode.ErrorResponse
		unknownCA x509.UnknownAuthorityError
		plain     tls.RecordHeaderError
		request   *url.Error
	)
	switch {
	case errors.As(err, &invalid):
		return invalid
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &wait):
		return wait
	case ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errors.New("no answer in time; pass --timeout to wait longer")
		}
		return ctx.Err()
	case errors.As(err, &response):
		return status(response, c.guard.registry)
	case errors.Is(err, errdef.ErrNotFound):
		return errors.New("not found")
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fmt.Errorf("401 Unauthorized: there are no credentials; log in, for example with docker login %s", c.guard.registry)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		return &InvalidError{"its content does not match its digest and size"}
	case errors.Is(err, errdef.ErrTooManyPages):
		return &InvalidError{fmt.Sprintf("more than %d pages of referrers", maxPages)}
	case errors.As(err, &unknownCA):
		return errors.New("the certificate is signed by an unknown authority; pass its certificate with --ca-file")
	case errors.As(err, &plain) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return errors.New("the registry does not use TLS; pass --plain-http if you trust the network")
	case errors.As(err, &request):
		return request.Err
	}
	return err
}

// status returns the error for a response, without its body.
func status(r *errcode.ErrorResponse, registry string) error {
	text := fmt.Sprintf("%d %s", r.StatusCode, http.StatusText(r.StatusCode))
	if r.URL != nil && r.URL.Host != registry {
		text += " of " + r.URL.Host
	}
	switch r.StatusCode {
	case http.StatusUnauthorized:
		text += "; log in, for example with docker login " + registry
	case http.StatusForbidden:
		text += ": the credentials do not have the right"
	case http.StatusMethodNotAllowed:
		text += ": the registry does not allow this; a registry may be configured without deletion"
	}
	return errors.New(text)
}
