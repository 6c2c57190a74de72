package index

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
)

// LastReady returns when a Node was last ready, in seconds since 1970, as the Seen value of a Node whose publisher has no Lease; 0:
// it is ready, or its condition is not set. It is the transition time of the condition, not the time of the kubelet's last
// heartbeat: a running kubelet keeps reporting that its node is not ready, and a dead one may have reported up to five minutes
// before it stopped.
func LastReady(n *corev1.Node) int64 {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			at := c.LastTransitionTime
			if at.IsZero() {
				at = c.LastHeartbeatTime
			}
			return max(at.Unix(), 1)
		}
	}
	return 0
}

// NodeOf returns a Node of an index from the input of rules for it and its Node object, which may be nil.
func NodeOf(in rules.Input, object *corev1.Node) Node {
	n := Node{Input: in}
	if object != nil {
		n.Labels, n.Annotations, n.Seen = object.Labels, object.Annotations, LastReady(object)
	}
	return n
}
