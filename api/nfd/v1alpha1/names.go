package v1alpha1

// Names that NFD writes on Nodes and NodeFeatures. Consumers (GPU operators, device plugins, autoscalers) read them, so
// they are part of the wire format as much as the fields are.
const (
	// FeatureLabelNamespace is the namespace of every label, annotation and extended resource that is written without one.
	FeatureLabelNamespace = "feature.node.kubernetes.io"
	// ProfileLabelNamespace is the second namespace under kubernetes.io that rules may write labels into.
	ProfileLabelNamespace = "profile.node.kubernetes.io"
	// BookkeepingNamespace is the namespace of the annotations that record what was written on a Node.
	BookkeepingNamespace = "nfd.node.kubernetes.io"

	// NodeNameLabel names the Node that a NodeFeature describes.
	NodeNameLabel = BookkeepingNamespace + "/node-name"

	// FeatureLabelsAnnotation lists the labels that the controller owns on a Node: sorted names, separated by commas,
	// without the default namespace.
	FeatureLabelsAnnotation = BookkeepingNamespace + "/feature-labels"
	// FeatureAnnotationsAnnotation lists the annotations that the controller owns on a Node, in the same form.
	FeatureAnnotationsAnnotation = BookkeepingNamespace + "/feature-annotations"
	// ExtendedResourcesAnnotation lists the extended resources that the controller owns on a Node, in the same form.
	ExtendedResourcesAnnotation = BookkeepingNamespace + "/extended-resources"
	// TaintsAnnotation lists the taints that the controller owns on a Node, as key=value:effect.
	TaintsAnnotation = BookkeepingNamespace + "/taints"

	// WorkerVersionAnnotation says on a NodeFeature which version of the worker wrote it.
	WorkerVersionAnnotation = BookkeepingNamespace + "/worker.version"
	// WorkerPodUIDAnnotation says on a NodeFeature which pod wrote it.
	WorkerPodUIDAnnotation = BookkeepingNamespace + "/worker.pod.uid"
)

// RuleMatchedFeature is the feature that holds the labels and vars of the rules evaluated so far (a back-reference). It
// is synthetic: one that is published in a NodeFeature is ignored.
const RuleMatchedFeature = "rule.matched"
