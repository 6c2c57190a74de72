// Package definition says in which state the definition of a kind is.
//
// Other programs replace and delete the CustomResourceDefinitions of kinds that Assay reads: Helm hooks of operators write NFD's own
// definitions over Assay's. The API server then drops the fields that the definition lacks from every object, without an Event, a new
// generation or, until the object is written, a new resourceVersion. An object that was read then is not what its user wrote.
package definition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
)

// Kind is the kind of definitions.
var Kind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// The names of the definitions.
const (
	Rules     = "nodefeaturerules.nfd.k8s-sigs.io"
	Features  = "nodefeatures.nfd.k8s-sigs.io"
	Groups    = "nodefeaturegroups.nfd.k8s-sigs.io"
	Sets      = "nodefeaturesets.assay.dev"
	Templates = "nodefeatureruletemplates.assay.dev"
	Requests  = "nodefeaturerequests.assay.dev"
	Policies  = "nodefeatureschedulingpolicies.assay.dev"
	Baselines = "nodebaselines.assay.dev"
	Shapes    = "nodeshapes.assay.dev"
)

// State is the state of a definition.
type State string

// The states.
const (
	// Unknown means that it cannot be read.
	Unknown State = "unknown"
	// Whole means that it has every field that this program knows.
	Whole State = "whole"
	// Older means that it is Assay's own, and lacks only fields that are newer.
	Older State = "older"
	// Foreign means that it lacks fields, and is not an older one of Assay's.
	Foreign State = "foreign"
	// Absent means that it does not exist, or is being deleted with all objects of its kind.
	Absent State = "absent"
)

// Status is what is known of a definition.
type Status struct {
	State State
	// UID is that of the definition; empty: it is absent or unknown.
	UID types.UID
	// Missing are the fields that the API server drops, such as spec.rules[].conditions, sorted.
	Missing []string
	// Returning is set while it is whole again, and its objects are about to be listed: one that is created or edited now loses nothing.
	Returning bool
}

// Trusted reports whether objects that are read have all the fields that their users wrote, as far as this version of Assay had them.
func (s *Status) Trusted() bool { return s.State == Whole || s.State == Older }

// Drops returns the missing fields of the spec.
func (s *Status) Drops() (out []string) {
	for _, field := range s.Missing {
		if strings.HasPrefix(field, "spec.") {
			out = append(out, field)
		}
	}
	return out
}

// Of returns the status of a served definition.
func Of(served *unstructured.Unstructured) (Status, error) {
	if served.GetDeletionTimestamp() != nil {
		return Status{State: Absent}, nil
	}
	lacks, err := missing(served.GetName(), served.Object, "spec", "status")
	if err != nil {
		return Status{State: Unknown}, err
	}
	out := Status{State: Whole, UID: served.GetUID(), Missing: lacks}
	switch {
	case len(lacks) == 0:
	case older(served, lacks, since[served.GetName()]):
		out.State = Older
	default:
		out.State = Foreign
	}
	return out, nil
}

// since has the fields that definitions got after version 1, with the assayv1alpha1.DefinitionVersion that has them first, by the name of the
// definition. A definition that lacks another field is not an older one of Assay's.
var since = map[string]map[string]int{}

// older reports whether a definition is one of an earlier version of Assay. Its annotation alone does not show that: a program that applies
// NFD's definition server-side leaves it.
func older(served metav1.Object, lacks []string, since map[string]int) bool {
	of, err := strconv.Atoi(served.GetAnnotations()[assayv1alpha1.DefinitionVersionAnnotation])
	return err == nil && !slices.ContainsFunc(lacks, func(field string) bool { return of >= since[field] })
}

// Problem says what is wrong with a served definition, and who has written it last; empty: it is whole.
func Problem(served *unstructured.Unstructured, status Status) string {
	name, by := served.GetName(), ""
	if writer := LastWriter(served.GetManagedFields()); writer != "" {
		by = ", last written by " + writer
	}
	drops := clip.Join(status.Missing, ", ", maxListed)
	switch status.State {
	case Whole:
		return ""
	case Older:
		return fmt.Sprintf("CustomResourceDefinition %s is of an older version of Assay%s: the API server drops %s", name, by, drops)
	case Absent:
		return fmt.Sprintf("CustomResourceDefinition %s is being deleted with all its objects; what they gave to Nodes stays", name)
	}
	return fmt.Sprintf("CustomResourceDefinition %s is not Assay's%s: the API server drops %s; what was accepted before stays as it is, and what may have lost fields waits",
		name, by, drops)
}

// maxListed is the maximum number of fields in a message.
const maxListed = 5

// LastWriter returns the field manager that last changed the spec of a definition; empty: unknown.
func LastWriter(managed []metav1.ManagedFieldsEntry) string {
	var last metav1.ManagedFieldsEntry
	for _, m := range managed {
		writesSpec := m.Subresource == "" && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:spec"`)
		if writesSpec && (last.Time == nil || m.Time != nil && last.Time.Before(m.Time)) {
			last = m
		}
	}
	return last.Manager
}
