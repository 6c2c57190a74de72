package apiserver

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of the server.
type Resource struct {
	Group, Version, Name, Kind string
	Namespaced                 bool
	// Status is set if it has a status subresource.
	Status bool
	// Generation is set if the server counts changes of the spec.
	Generation bool
	// Observed is set if every object has a status: its default has an observedGeneration of -1.
	Observed bool
	// Immutable is set if the spec cannot be changed.
	Immutable bool
	// Conditional is set if a PUT must have a resourceVersion although the kind is built in.
	Conditional bool
	// Fields returns the fields of an object that can be selected, in addition to its name and namespace; nil: none.
	Fields func(o Object) fields.Set
	// Typed returns an empty object of a built-in kind, which determines the stored form; nil: a custom resource.
	Typed func() any
}

func (r *Resource) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

func (r *Resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// discover answers discovery requests; nil: it is another request.
func (s *Server) discover(path string) *response {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		return ok(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		return ok(s.groups())
	case len(parts) == 2 && parts[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, r := range s.resources {
		version := metav1.GroupVersionForDiscovery{GroupVersion: r.groupVersion().String(), Version: r.Version}
		if r.Group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group }) {
			continue
		}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
	}
	return list
}

func (s *Server) resourceList(gv schema.GroupVersion) *response {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range s.resources {
		if r.groupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, SingularName: strings.ToLower(r.Kind),
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
		if r.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Name + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if len(list.APIResources) == 0 {
		return &response{code: http.StatusNotFound, body: []byte("404 page not found\n")}
	}
	return ok(list)
}
