// Package noworker tells nodes that cannot run a worker from nodes that lack one.
package noworker

import corev1 "k8s.io/api/core/v1"

// ByDesign reports whether a node has no worker by design: its operating system is not Linux, or it is not a machine and runs no
// DaemonSets. The chart's DaemonSets leave these nodes out.
func ByDesign(n *corev1.Node) bool {
	os := n.Labels[corev1.LabelOSStable]
	return os != "" && os != "linux" || n.Labels["eks.amazonaws.com/compute-type"] == "fargate" || n.Labels["type"] == "virtual-kubelet"
}
