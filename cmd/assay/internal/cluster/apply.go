package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// fieldManager is the field manager of ApplyRule, and the value of the managed-by label of the applied objects.
const fieldManager = "assay-library"

const (
	// managedByLabel is the label for the tool that manages an object.
	managedByLabel = "app.kubernetes.io/managed-by"
	// ownerLabel is the label for the client that applied a rule of the library. Rules applied by users of the command do not have
	// it.
	ownerLabel = "assay.dev/library-owner"
)

// ApplyOptions are the options of a server-side apply.
type ApplyOptions struct {
	// DryRun does not persist the object.
	DryRun bool
	// Force takes over fields of other field managers instead of reporting a conflict.
	Force bool
	// Owner is the value of ownerLabel. It is empty for users of the command.
	Owner string
}

// ApplyRule applies a NodeFeatureRule in YAML with server-side apply and labels it as part of the library. Unknown fields are
// errors.
func (c *Client) ApplyRule(ctx context.Context, name string, text []byte, options ApplyOptions) error {
	object := unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return err
	}
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel] = fieldManager
	if options.Owner != "" {
		labels[ownerLabel] = options.Owner
	}
	object.SetLabels(labels)
	content, err := object.MarshalJSON() // JSON is valid YAML
	if err != nil {
		return err
	}
	query := url.Values{
		"fieldManager":    {fieldManager},
		"fieldValidation": {"Strict"},
		"force":           {strconv.FormatBool(options.Force)},
	}
	if options.DryRun {
		query.Set("dryRun", "All")
	}
	path := nfdPath("nodefeaturerules") + "/" + url.PathEscape(name)
	code, body, err := c.send(ctx, http.MethodPatch, path, query, "application/apply-patch+yaml", content)
	if err != nil {
		return err
	}
	if code == http.StatusOK || code == http.StatusCreated {
		return nil
	}
	err = refused(code, body)
	if IsNotFound(err) {
		return absent(nfdPath("nodefeaturerules"))
	}
	return fmt.Errorf("nodefeaturerule %s: %w", name, err)
}

// PruneRules deletes the NodeFeatureRules of the library with the given owner, except for those in keep. It returns the names of
// the deleted rules, even if it also returns an error.
func (c *Client) PruneRules(ctx context.Context, keep []string, options ApplyOptions) (deleted []string, err error) {
	path := nfdPath("nodefeaturerules")
	selector := managedByLabel + "=" + fieldManager + ",!" + ownerLabel
	if options.Owner != "" {
		selector = managedByLabel + "=" + fieldManager + "," + ownerLabel + "=" + options.Owner
	}
	items, err := list[metav1.PartialObjectMetadata](ctx, c, path, url.Values{"labelSelector": {selector}})
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if options.DryRun {
		query.Set("dryRun", "All")
	}
	for i := range items {
		name := items[i].Name
		if slices.Contains(keep, name) {
			continue
		}
		object := path + "/" + url.PathEscape(name)
		code, body, err := c.send(ctx, http.MethodDelete, object, query, "", nil)
		if err != nil {
			return deleted, err
		}
		if code != http.StatusOK && code != http.StatusNotFound {
			return deleted, fmt.Errorf("delete nodefeaturerule %s: %w", name, refused(code, body))
		}
		deleted = append(deleted, name)
	}
	return deleted, nil
}
