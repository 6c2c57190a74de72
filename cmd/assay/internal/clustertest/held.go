package clustertest

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/hold"
)

// LabelManagers returns managedFields by which a client owns labels.
func LabelManagers(client string, labels ...string) []Object {
	fields := Object{}
	for _, l := range labels {
		fields["f:"+l] = Object{}
	}
	return []Object{{"manager": client, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": Object{"f:metadata": Object{"f:labels": fields}}}}
}

// HeldEvent returns the Event in which the controller publishes a hold of a Node.
func HeldEvent(node, reason string, until time.Time, why string, keys ...string) Object {
	n := &corev1.Node{}
	n.Name, n.UID = node, "now"
	data, err := json.Marshal(hold.Event("", n, []hold.Hold{{Reason: reason, Until: until, Why: why, Keys: keys}}, time.Now()))
	out := Object{}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		panic(err) // an Event can always be encoded
	}
	return out
}
