package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the kinds in this package. It equals NFD's, because Assay serves NFD's kinds.
const GroupName = "nfd.k8s-sigs.io"

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// The resources of the group, for clients without typed kinds.
var (
	NodeFeatureResource     = GroupVersion.WithResource("nodefeatures")
	NodeFeatureRuleResource = GroupVersion.WithResource("nodefeaturerules")
)

// AddToScheme adds the kinds in this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NodeFeature{}, &NodeFeatureList{},
		&NodeFeatureRule{}, &NodeFeatureRuleList{},
		&NodeFeatureGroup{}, &NodeFeatureGroupList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
