package v1alpha1

// FeatureMatcher is a list of terms that must all match.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=64
type FeatureMatcher []FeatureMatcherTerm

// FeatureMatcherTerm is a condition on one feature.
type FeatureMatcherTerm struct {
	// feature is the name of the feature, such as cpu.cpuid. Case is ignored. A term on a feature that the node does not have
	// never matches, regardless of the operator.
	// +kubebuilder:validation:MaxLength=1024
	Feature string `json:"feature"`
	// matchExpressions maps element names to expressions that must all match. For a feature that is a list of instances, a single
	// instance must match all of them. An empty map matches every element; if absent, only matchName is evaluated.
	// +optional
	MatchExpressions *MatchExpressionSet `json:"matchExpressions"`
	// matchName is evaluated against the names of the elements, or the names of the attributes of instances. At least one name
	// must match.
	// +optional
	MatchName *MatchExpression `json:"matchName"`
}

// MatchExpressionSet maps the name of an element to an expression.
//
// +mapType=atomic
// +kubebuilder:validation:MaxProperties=64
type MatchExpressionSet map[string]*MatchExpression

// MatchExpression is a condition on one element.
type MatchExpression struct {
	// op is the operator.
	Op MatchOp `json:"op"`
	// value holds the arguments of the operator: none for Exists, DoesNotExist, IsTrue and IsFalse; one for Gt, Ge, Lt and Le;
	// two for GtLt and GeLe; one or more for In, NotIn and InRegexp.
	// +optional
	Value MatchValue `json:"value,omitempty"`
	// type is how Gt, Ge, Lt, Le, GtLt and GeLe compare: as integers (the default), or as versions with "version".
	// Integers that are compared with a number of bytes, such as memory.total bytes, may be quantities such as 500Gi.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Type ValueType `json:"type,omitempty"`
}

// MatchValue holds the arguments of an operator.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=256
// +kubebuilder:validation:items:MaxLength=1024
type MatchValue []string

// MatchOp is an operator of a MatchExpression. hack/crds adds the known operators to the CRDs as an enum.
type MatchOp string

// The operators of a MatchExpression. MatchAny is valid in the configuration of the worker only.
const (
	MatchAny          MatchOp = ""
	MatchIn           MatchOp = "In"
	MatchNotIn        MatchOp = "NotIn"
	MatchInRegexp     MatchOp = "InRegexp"
	MatchExists       MatchOp = "Exists"
	MatchDoesNotExist MatchOp = "DoesNotExist"
	MatchGt           MatchOp = "Gt"
	MatchGe           MatchOp = "Ge"
	MatchLt           MatchOp = "Lt"
	MatchLe           MatchOp = "Le"
	MatchGtLt         MatchOp = "GtLt"
	MatchGeLe         MatchOp = "GeLe"
	MatchIsTrue       MatchOp = "IsTrue"
	MatchIsFalse      MatchOp = "IsFalse"
)

// ValueType is how the ordering operators parse their input and arguments.
type ValueType string

// The known types of values.
const (
	TypeInteger ValueType = ""
	TypeVersion ValueType = "version"
)

// MatchAnyElem is one alternative of matchAny.
type MatchAnyElem struct {
	// matchFeatures lists the terms of this alternative. All must match.
	MatchFeatures FeatureMatcher `json:"matchFeatures"`
}
