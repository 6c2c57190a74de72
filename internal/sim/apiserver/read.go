package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (s *Server) get(c *call) (Object, error) {
	if v := c.query.Get("resourceVersion"); v != "" && v != "0" {
		return nil, errUnsupported("GET with resourceVersion " + v)
	}
	o := s.now(c.resource).get(key(c.namespace, c.name))
	if o == nil {
		return nil, apierrors.NewNotFound(c.resource.groupResource(), c.name)
	}
	return s.prune(c.resource, o), nil
}

// selection is the set of objects of a list or a watch.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	of        func(o Object) fields.Set // see Resource.Fields
}

func (c *call) selection() (sel selection, err error) {
	sel.namespace, sel.of = c.namespace, c.resource.Fields
	if sel.labels, err = labels.Parse(c.query.Get("labelSelector")); err != nil {
		return sel, err
	}
	if sel.fields, err = fields.ParseSelector(c.query.Get("fieldSelector")); err != nil {
		return sel, err
	}
	known := sel.fieldsOf(Object{})
	for _, r := range sel.fields.Requirements() {
		if !known.Has(r.Field) {
			return sel, errUnsupported("field selector " + r.Field)
		}
	}
	return sel, nil
}

func (sel selection) matches(o Object) bool {
	if o == nil {
		return false
	}
	m := meta(o)
	if sel.namespace != "" && sel.namespace != text(m, "namespace") {
		return false
	}
	if sel.labels.Empty() && sel.fields.Empty() {
		return true
	}
	set := labels.Set{}
	if l, has := m["labels"].(Object); has {
		for k := range l {
			set[k] = text(l, k)
		}
	}
	return sel.labels.Matches(set) && sel.fields.Matches(sel.fieldsOf(o))
}

// fieldsOf returns the fields of an object that can be selected.
func (sel selection) fieldsOf(o Object) fields.Set {
	out := fields.Set{}
	if sel.of != nil {
		out = sel.of(o)
	}
	m, _ := o["metadata"].(Object)
	out["metadata.name"], out["metadata.namespace"] = text(m, "name"), text(m, "namespace")
	return out
}

// page is the position at which a list continues.
type page struct {
	Revision int64
	After    string
}

func (s *Server) list(c *call) *response {
	sel, err := c.selection()
	if err != nil {
		return fail(err)
	}
	at, rest, bad := s.listAt(c)
	if bad != nil {
		return bad
	}
	limit, _ := strconv.Atoi(c.query.Get("limit"))
	if c.query.Get("resourceVersion") == "0" {
		limit = 0 // the watch cache does not support paging
	}
	found, items := s.at(c.resource, at.Revision), []any{}
	listMeta := Object{"resourceVersion": strconv.FormatInt(at.Revision, 10)}
	for i, k := range found.keys {
		if k <= at.After && rest || sel.namespace != "" && !strings.HasPrefix(k, sel.namespace+"/") {
			continue
		}
		if limit > 0 && len(items) == limit { // the next object, selected or not
			last := items[limit-1].(Object)["metadata"].(Object)
			next := page{at.Revision, key(text(last, "namespace"), text(last, "name"))}
			listMeta["continue"] = base64.RawURLEncoding.EncodeToString(encode(next))
			break
		}
		o := s.prune(c.resource, found.objects[i])
		if !sel.matches(o) {
			continue
		}
		if c.metadata {
			o = partial(o)
		} else if c.resource.Typed != nil { // items of built-in lists have no kind
			o = maps.Clone(o)
			delete(o, "kind")
			delete(o, "apiVersion")
		}
		items = append(items, o)
	}
	out := Object{"kind": c.resource.Kind + "List", "apiVersion": c.resource.groupVersion().String(), "metadata": listMeta, "items": items}
	if c.metadata {
		out["kind"], out["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return ok(out)
}

// listAt returns the revision of a list, and where it continues.
func (s *Server) listAt(c *call) (at page, rest bool, bad *response) {
	if token := c.query.Get("continue"); token != "" {
		data, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || json.Unmarshal(data, &at) != nil {
			return at, false, fail(apierrors.NewBadRequest("continue key is not valid"))
		}
		if at.Revision < s.compacted {
			return at, false, fail(apierrors.NewResourceExpired("The provided continue parameter is too old"))
		}
		return at, true, nil
	}
	at.Revision = s.revision
	version := c.query.Get("resourceVersion")
	if version == "" || version == "0" {
		return at, false, nil
	}
	wanted, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return at, false, fail(apierrors.NewBadRequest("invalid resource version " + strconv.Quote(version)))
	}
	if wanted > s.revision {
		return at, false, tooLarge(wanted, s.revision)
	}
	switch metav1.ResourceVersionMatch(c.query.Get("resourceVersionMatch")) {
	case metav1.ResourceVersionMatchExact:
		if wanted < s.compacted {
			return at, false, fail(apierrors.NewResourceExpired("The resourceVersion for the provided list is too old."))
		}
		at.Revision = wanted
	case metav1.ResourceVersionMatchNotOlderThan, "":
	default:
		return at, false, fail(apierrors.NewBadRequest("unknown resourceVersionMatch"))
	}
	return at, false, nil
}

// tooLarge returns the error for a revision that has not been reached.
func tooLarge(wanted, have int64) *response {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	answer := fail(err)
	answer.header = http.Header{"Retry-After": {"1"}}
	return answer
}
