package manifest

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// The kinds that Assay supports.
const (
	KindRule     = "NodeFeatureRule"
	KindTemplate = "NodeFeatureRuleTemplate"
	KindFeature  = "NodeFeature"
	KindGroup    = "NodeFeatureGroup"
	KindRequest  = "NodeFeatureRequest"
	KindPolicy   = "NodeFeatureSchedulingPolicy"
	KindSet      = "NodeFeatureSet"
	KindShape    = "NodeShape"
	KindBaseline = "NodeBaseline"
)

var (
	nfdVersion   = nfdv1alpha1.GroupVersion.String()
	assayVersion = assayv1alpha1.GroupVersion.String()
)

// kinds maps each kind to its apiVersion and its type.
var kinds = map[string]struct {
	apiVersion string
	of         reflect.Type
}{
	KindRule:     {nfdVersion, reflect.TypeFor[nfdv1alpha1.NodeFeatureRule]()},
	KindFeature:  {nfdVersion, reflect.TypeFor[nfdv1alpha1.NodeFeature]()},
	KindGroup:    {nfdVersion, reflect.TypeFor[nfdv1alpha1.NodeFeatureGroup]()},
	KindTemplate: {assayVersion, reflect.TypeFor[assayv1alpha1.NodeFeatureRuleTemplate]()},
	KindRequest:  {assayVersion, reflect.TypeFor[assayv1alpha1.NodeFeatureRequest]()},
	KindPolicy:   {assayVersion, reflect.TypeFor[assayv1alpha1.NodeFeatureSchedulingPolicy]()},
	KindSet:      {assayVersion, reflect.TypeFor[assayv1alpha1.NodeFeatureSet]()},
	KindShape:    {assayVersion, reflect.TypeFor[assayv1alpha1.NodeShape]()},
	KindBaseline: {assayVersion, reflect.TypeFor[assayv1alpha1.NodeBaseline]()},
}

// clusterScoped are the kinds whose objects are in no namespace.
var clusterScoped = map[string]bool{KindRule: true, KindTemplate: true, KindPolicy: true, KindShape: true, KindBaseline: true}

// openShiftGroup is the API group of NFD's kinds in OpenShift's NFD operator.
const openShiftGroup = "nfd.openshift.io/"

// Kinds returns the sorted names of the supported kinds.
func Kinds() []string {
	var out []string
	for kind := range kinds {
		out = append(out, kind)
	}
	slices.Sort(out)
	return out
}

// Known reports whether the kind of the document is supported, or is a likely misspelling of a supported kind.
func (d *Document) Known() bool {
	if _, ok := kinds[d.Kind]; ok {
		return true
	}
	return d.Kind != "" && (d.APIVersion == nfdVersion || d.APIVersion == assayVersion)
}

// CheckType checks apiVersion, kind and metadata, which every object must have.
func (d *Document) CheckType() []Problem {
	w := &walker{doc: d}
	kind, ok := kinds[d.Kind]
	if !ok {
		w.problem(nodeOr(d.Child("kind"), d.Root), Error, "kind", "kind",
			"unknown kind %q in %s%s", d.Kind, d.APIVersion, yamltree.DidYouMean(d.Kind, Kinds()))
		return w.problems
	}
	if d.APIVersion != kind.apiVersion {
		switch {
		case d.APIVersion == "":
			w.problem(d.Root, Error, "kind", "apiVersion", "missing; write %s", kind.apiVersion)
		case strings.HasPrefix(d.APIVersion, openShiftGroup):
			w.problem(d.Child("apiVersion"), Warning, "kind", "apiVersion",
				"%s is for OpenShift's operator, and Assay ignores this object; assay convert nfd-openshift renames it to %s", d.APIVersion, kind.apiVersion)
		default:
			w.problem(d.Child("apiVersion"), Error, "kind", "apiVersion", "is %s; %s is of %s", d.APIVersion, d.Kind, kind.apiVersion)
		}
	}
	if namespace := d.Child("metadata", "namespace"); namespace != nil && clusterScoped[d.Kind] {
		w.problem(namespace, Warning, "namespace", "metadata.namespace", "a %s is in no namespace: the API server ignores it; remove it", d.Kind)
	}
	if d.Name == "" && text(d.Child("metadata", "generateName")) == "" {
		w.problem(nodeOr(d.Child("metadata"), d.Root), Error, "required", "metadata.name", "missing; every object needs a name")
	}
	if d.Name != "" && len(validation.IsDNS1123Subdomain(d.Name)) > 0 {
		w.problem(d.Child("metadata", "name"), Error, "invalid", "metadata.name", "invalid name %q: write up to %d lower-case letters, "+
			"digits, '-' and '.', with a letter or digit at both ends", d.Name, validation.DNS1123SubdomainMaxLength)
	}
	if d.Child("spec") == nil && d.Kind != KindShape && !d.Suspect("spec") {
		w.problem(d.Root, Error, "required", "spec", "missing%s", didYouMeanField("spec", d.Root))
	}
	return w.problems
}
