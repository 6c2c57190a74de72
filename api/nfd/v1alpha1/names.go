package v1alpha1

import "strings"

// Names that NFD writes on Nodes and NodeFeatures. GPU operators, device plugins and autoscalers read them, so they are part of the
// API like the fields.
const (
	// FeatureLabelNamespace is the default prefix of labels, annotations and extended resources.
	FeatureLabelNamespace = "feature.node.kubernetes.io"
	// ProfileLabelNamespace is the second prefix below kubernetes.io that rules may use for labels.
	ProfileLabelNamespace = "profile.node.kubernetes.io"
	// BookkeepingNamespace is the prefix of the annotations that record what the controller wrote on a Node.
	BookkeepingNamespace = "nfd.node.kubernetes.io"

	// NodeNameLabel on a NodeFeature is the name of the Node that it describes.
	NodeNameLabel = BookkeepingNamespace + "/node-name"

	// FeatureLabelsAnnotation lists the labels that the controller owns on a Node: sorted names, separated by commas,
	// without the default prefix.
	FeatureLabelsAnnotation = BookkeepingNamespace + "/feature-labels"
	// FeatureAnnotationsAnnotation lists the annotations that the controller owns on a Node, in the same form.
	FeatureAnnotationsAnnotation = BookkeepingNamespace + "/feature-annotations"
	// ExtendedResourcesAnnotation lists the extended resources that the controller owns on a Node, in the same form.
	ExtendedResourcesAnnotation = BookkeepingNamespace + "/extended-resources"
	// TaintsAnnotation lists the taints that the controller owns on a Node, as key=value:effect.
	TaintsAnnotation = BookkeepingNamespace + "/taints"

	// WorkerVersionAnnotation is the version of the worker that wrote a NodeFeature.
	WorkerVersionAnnotation = BookkeepingNamespace + "/worker.version"
	// WorkerPodUIDAnnotation is the UID of the pod that wrote a NodeFeature.
	WorkerPodUIDAnnotation = BookkeepingNamespace + "/worker.pod.uid"
)

// controllerLease is the Lease of the controller, in its own namespace. It equals NFD's, so that NFD and Assay never write Nodes at
// the same time during a migration.
const controllerLease = "nfd-master.nfd.kubernetes.io"

// LeaseName returns the name of the controller's Lease for an instance name. Each instance has its own Lease, since each writes its
// own labels.
func LeaseName(instance string) string {
	if instance == "" {
		return controllerLease
	}
	return strings.ToLower(instance) + "." + controllerLease // names of objects are in lower case
}

// RuleMatchedFeature is the feature that contains the labels and vars of the rules evaluated so far (a back-reference). It is
// synthetic: if a NodeFeature contains it, it is ignored.
const RuleMatchedFeature = "rule.matched"

// UnreadFeature is the feature by which the worker names, as flags, the sources that it has not read since the node booted: they have not
// answered, or only failed. Features of these sources are unknown, not absent. It does not exist if there are none, and NFD's workers do not
// publish it.
const UnreadFeature = "source.unread"

// BootFeature is the feature by which the worker reports on which boot of the node its features are, and BootElement its element, the ID that
// the kubelet reports as status.nodeInfo.bootID. NFD's workers do not publish it.
const (
	BootFeature = "system.boot"
	BootElement = "id"
)

// DescribesPublication reports whether a feature describes what a worker has published, and not the node. It belongs to no source: the worker
// publishes it independent of the selected sources, and what is unknown while a source has not been read does not include it.
func DescribesPublication(feature string) bool {
	return strings.EqualFold(feature, BootFeature) || strings.EqualFold(feature, UnreadFeature)
}
