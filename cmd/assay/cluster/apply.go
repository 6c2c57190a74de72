package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// fieldManager owns the fields of what ApplyRule writes.
const fieldManager = "assay-library"

// ApplyOptions are the options of a server-side apply.
type ApplyOptions struct {
	// DryRun stores nothing.
	DryRun bool
	// Force takes over fields of other field managers instead of reporting a conflict.
	Force bool
}

// ApplyRule applies a NodeFeatureRule, given as YAML, by server-side apply. Unknown fields are errors.
func (c *Client) ApplyRule(ctx context.Context, name string, yaml []byte, options ApplyOptions) error {
	query := url.Values{
		"fieldManager":    {fieldManager},
		"fieldValidation": {"Strict"},
		"force":           {strconv.FormatBool(options.Force)},
	}
	if options.DryRun {
		query.Set("dryRun", "All")
	}
	path := nfdPath("nodefeaturerules") + "/" + url.PathEscape(name)
	code, body, err := c.send(ctx, http.MethodPatch, path, query, "application/apply-patch+yaml", yaml)
	if err != nil {
		return err
	}
	if code == http.StatusOK || code == http.StatusCreated {
		return nil
	}
	err = refused(code, body, path)
	if IsNotFound(err) {
		return fmt.Errorf("the cluster does not have the kind NodeFeatureRule; install Assay first: %w", err)
	}
	return fmt.Errorf("nodefeaturerule %s: %w", name, err)
}
