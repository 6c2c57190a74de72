package index

import (
	corev1 "k8s.io/api/core/v1"
)

// LastReady is when a Node was last ready, in seconds since 1970, for the Seen of a Node whose publisher says nothing itself;
// 0: it is ready, or nobody has said otherwise. It is the time at which the condition changed, not that of the kubelet's last
// report: a kubelet that is fine goes on reporting that its node is not, and one that is gone has reported up to five minutes
// before it went.
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
