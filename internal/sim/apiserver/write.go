package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// normal returns an object in its stored form.
func (r *Resource) normal(o Object) (Object, error) {
	if r.Typed == nil {
		if r.Observed && o["status"] == nil {
			o["status"] = Object{"observedGeneration": int64(-1)}
		}
		for k, v := range meta(o) { // the API server omits empty values
			if m, is := v.(Object); is && len(m) == 0 {
				delete(meta(o), k)
			}
			if list, is := v.([]any); is && len(list) == 0 {
				delete(meta(o), k)
			}
		}
		return o, nil
	}
	typed := r.Typed()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, typed); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if n, is := typed.(*corev1.Node); is && n.Status.Capacity != nil && n.Status.Allocatable == nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, err
	}
	out["kind"], out["apiVersion"] = r.Kind, r.groupVersion().String()
	return out, nil
}

func (s *Server) create(c *call) (Object, error) {
	o, err := c.decode()
	if err != nil {
		return nil, err
	}
	o["kind"], o["apiVersion"] = c.resource.Kind, c.resource.groupVersion().String()
	m := meta(o)
	if text(m, "resourceVersion") != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if text(m, "name") == "" && text(m, "generateName") != "" {
		m["name"] = fmt.Sprintf("%s%05d", text(m, "generateName"), s.created+1)
	}
	name := text(m, "name")
	if name == "" {
		return nil, apierrors.NewBadRequest("name or generateName is required")
	}
	if c.resource.Namespaced {
		m["namespace"] = c.namespace
	}
	k := key(c.namespace, name)
	if s.now(c.resource).get(k) != nil {
		return nil, apierrors.NewAlreadyExists(c.resource.groupResource(), name)
	}
	if c.resource.Status && c.resource.Typed == nil {
		delete(o, "status")
	}
	delete(m, "deletionTimestamp")
	m["uid"], m["creationTimestamp"] = s.nextUID(), s.timestamp()
	if c.resource.Generation {
		m["generation"] = int64(1)
	}
	if o, err = c.resource.normal(s.prune(c.resource, o)); err != nil {
		return nil, err
	}
	if c.query.Get("dryRun") != "" {
		return o, nil
	}
	return s.commit(c.resource, k, o, c.by), nil
}

func (s *Server) update(c *call) (Object, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	next, err := c.decode()
	if err != nil {
		return nil, err
	}
	if text(meta(next), "resourceVersion") == "" && (c.resource.Typed == nil || c.resource.Conditional) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: c.resource.Group, Kind: c.resource.Kind}, c.name, nil)
	}
	return s.replace(c, old, next)
}

func (s *Server) patch(c *call) (Object, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	var next Object
	switch t := types.PatchType(c.contentType); t {
	case types.MergePatchType:
		change, err := c.decode()
		if err != nil {
			return nil, err
		}
		next = mergePatch(deepCopy(old), change)
	case types.StrategicMergePatchType:
		if c.resource.Typed == nil {
			return nil, apierrors.NewGenericServerResponse(415, "patch", c.resource.groupResource(), c.name, "", 0, false)
		}
		change, err := c.decode()
		if err != nil {
			return nil, err
		}
		if next, err = strategicpatch.StrategicMergeMapPatch(deepCopy(old), deepCopy(change), c.resource.Typed()); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, errUnsupported("patches of type " + c.contentType)
	}
	return s.replace(c, old, next)
}

// mergePatch applies a JSON merge patch (RFC 7386) to an object in place.
func mergePatch(to, change Object) Object {
	for k, v := range change {
		switch v := v.(type) {
		case nil:
			delete(to, k)
		case Object:
			below, isObject := to[k].(Object)
			if !isObject {
				below = Object{}
			}
			to[k] = mergePatch(below, v)
		default:
			to[k] = v
		}
	}
	return to
}

// kept lists the metadata that only the server changes.
var kept = []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"}

// replace stores the result of an update or a patch if it differs.
func (s *Server) replace(c *call, old, next Object) (Object, error) {
	r, before, m := c.resource, meta(old), meta(next)
	if v := text(m, "resourceVersion"); v != "" && v != text(before, "resourceVersion") {
		return nil, apierrors.NewConflict(r.groupResource(), c.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := text(m, "uid"); uid != "" && uid != text(before, "uid") {
		return nil, apierrors.NewConflict(r.groupResource(), c.name,
			fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, text(before, "uid"))) //nolint:staticcheck // the message of the API server
	}
	next["kind"], next["apiVersion"] = old["kind"], old["apiVersion"]
	switch {
	case c.subresource == "status" && r.Typed == nil:
		status := next["status"]
		next = deepCopy(old)
		set(next, "status", status)
	case c.subresource == "status":
		set(next, "spec", old["spec"])
	case r.Status:
		set(next, "status", old["status"])
	}
	m = meta(next)
	for _, k := range kept {
		set(m, k, before[k])
	}
	next, err := r.normal(s.prune(r, next))
	if err != nil {
		return nil, err
	}
	m = meta(next)
	if reflect.DeepEqual(old, next) {
		return old, nil
	}
	changed := specChanged(old, next, r.Status)
	if r.Immutable && changed {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: r.Group, Kind: r.Kind}, c.name, nil)
	}
	if r.Generation && changed {
		generation, _ := before["generation"].(int64)
		m["generation"] = generation + 1
	}
	k := key(c.namespace, c.name)
	if text(m, "deletionTimestamp") != "" && !hasFinalizers(next) {
		last := s.commit(r, k, nil, c.by) // watches see the object as it was before
		m["resourceVersion"] = meta(last)["resourceVersion"]
		return next, nil
	}
	return s.commit(r, k, next, c.by), nil
}

func specChanged(old, next Object, status bool) bool {
	for _, o := range []Object{old, next} {
		for k := range o {
			if k != "metadata" && (k != "status" || !status) && !reflect.DeepEqual(old[k], next[k]) {
				return true
			}
		}
	}
	return false
}

func set(o Object, k string, v any) {
	if v == nil {
		delete(o, k)
	} else {
		o[k] = v
	}
}

func hasFinalizers(o Object) bool {
	list, _ := meta(o)["finalizers"].([]any)
	return len(list) > 0
}

func (s *Server) remove(c *call) (Object, error) {
	var options metav1.DeleteOptions
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if p := options.PropagationPolicy; p != nil && *p != metav1.DeletePropagationBackground {
		return nil, errUnsupported("propagation policy " + string(*p))
	}
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	m := meta(old)
	if p := options.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != text(m, "uid") || p.ResourceVersion != nil && *p.ResourceVersion != text(m, "resourceVersion") {
			return nil, apierrors.NewConflict(c.resource.groupResource(), c.name, errors.New("Precondition failed")) //nolint:staticcheck // the message of the API server
		}
	}
	k := key(c.namespace, c.name)
	if hasFinalizers(old) {
		if text(m, "deletionTimestamp") != "" {
			return old, nil
		}
		next := deepCopy(old)
		meta(next)["deletionTimestamp"], meta(next)["deletionGracePeriodSeconds"] = s.timestamp(), int64(0)
		if generation, has := m["generation"].(int64); has {
			meta(next)["generation"] = generation + 1
		}
		return s.commit(c.resource, k, next, c.by), nil
	}
	s.commit(c.resource, k, nil, c.by)
	return Object{
		"kind": "Status", "apiVersion": "v1", "metadata": Object{}, "status": metav1.StatusSuccess,
		"details": Object{"name": c.name, "group": c.resource.Group, "kind": c.resource.Name, "uid": text(m, "uid")},
	}, nil
}

// CollectGarbage deletes the objects whose owners have all been deleted, and returns their number.
func (s *Server) CollectGarbage() (deleted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := map[string]bool{}
	for _, r := range s.resources {
		for _, o := range s.now(r).objects {
			alive[text(meta(o), "uid")] = true
		}
	}
	for _, r := range s.resources {
		for _, o := range s.now(r).objects {
			owners, _ := meta(o)["ownerReferences"].([]any)
			owned := len(owners) > 0
			for _, owner := range owners {
				reference, _ := owner.(Object)
				owned = owned && !alive[text(reference, "uid")]
			}
			if !owned {
				continue
			}
			c := &call{resource: r, namespace: text(meta(o), "namespace"), name: text(meta(o), "name"), by: "garbage-collector"}
			if _, err := s.remove(c); err == nil {
				deleted++
			}
		}
	}
	return deleted
}
