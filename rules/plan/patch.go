package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/rules/keys"
)

// PatchType is the type of what Patch returns: conditions are a list, which a JSON merge patch would replace as a whole, those of
// the kubelet included.
const PatchType = types.StrategicMergePatchType

// patch is a patch of a Node, in which null removes a key: a strategic merge patch, or without conditions also a JSON merge patch
// (RFC 7386).
type patch struct {
	Metadata patchMetadata `json:"metadata"`
	Status   *patchStatus  `json:"status,omitempty"`
	Spec     *patchSpec    `json:"spec,omitempty"`
}

type patchMetadata struct {
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

type patchStatus struct {
	Capacity    map[string]*string `json:"capacity,omitempty"`
	Allocatable map[string]*string `json:"allocatable,omitempty"`
	Conditions  []patchCondition   `json:"conditions,omitempty"`
}

type patchSpec struct {
	Taints []corev1.Taint `json:"taints"`
}

// Patch returns the patch, of PatchType, for the status subresource of the Node. It changes labels, annotations, extended resources,
// conditions and the records of them in one write, so that a crash leaves no keys without an owner. It includes the resourceVersion
// from which the plan was computed, so that it cannot overwrite later writes of other clients. It returns nil if there is nothing to do.
func (p *Plan) Patch() []byte {
	out := patch{Metadata: patchMetadata{Annotations: p.recordAfter(), Labels: make(map[string]*string, len(p.Steps))}}
	amounts := map[string]*string{}
	var conditions []patchCondition
	for i := range p.Steps {
		s := &p.Steps[i]
		value := &s.New
		if s.Op == Remove {
			value = nil
		}
		if s.Op == Adopt || s.Op == Forget {
			continue
		}
		switch s.Kind {
		case keys.Label:
			out.Metadata.Labels[s.Key] = value
		case keys.Annotation:
			out.Metadata.Annotations[s.Key] = value
		case keys.Resource:
			amounts[s.Key] = value
		case keys.Condition:
			conditions = append(conditions, p.patchCondition(s))
		}
	}
	if len(out.Metadata.Labels)+len(out.Metadata.Annotations)+len(amounts)+len(conditions) == 0 {
		return nil
	}
	if len(amounts)+len(conditions) > 0 {
		out.Status = &patchStatus{Capacity: amounts, Allocatable: amounts, Conditions: conditions}
	}
	out.Metadata.ResourceVersion = p.state.ResourceVersion
	return out.marshal()
}

// TaintPatch returns the JSON merge patch for the Node that changes taints and their record, for the given resourceVersion. Taints
// are one atomic list in the Node's spec, which the status subresource does not change. It returns nil if there is nothing to do.
func (p *Plan) TaintPatch(resourceVersion string) []byte {
	record := map[string]*string{}
	p.recordInto(record, p.policy.Record.Taints(), p.taintRecordAfter())
	changes := false
	for _, s := range p.Steps {
		changes = changes || s.Kind == keys.Taint && s.Op != Adopt && s.Op != Forget
	}
	if !changes && len(record) == 0 {
		return nil
	}
	out := patch{Metadata: patchMetadata{ResourceVersion: resourceVersion, Annotations: record}}
	if changes {
		out.Spec = &patchSpec{Taints: p.TaintsAfter()}
	}
	return out.marshal()
}

func (p patch) marshal() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and taints can always be encoded
	}
	return data
}

// String formats the plan for display, with one line per step: + for added keys, - for removed keys, ~ for changed keys.
func (p *Plan) String() string {
	var b strings.Builder
	for _, s := range p.Steps {
		switch s.Op {
		case Add:
			fmt.Fprintf(&b, "+ %s %s=%s\n", s.Kind, s.Key, s.New)
		case Remove:
			fmt.Fprintf(&b, "- %s %s=%s\n", s.Kind, s.Key, s.Old)
		case Change:
			fmt.Fprintf(&b, "~ %s %s=%s -> %s\n", s.Kind, s.Key, s.Old, s.New)
		case Adopt:
			fmt.Fprintf(&b, "= %s %s=%s (taken over as it is)\n", s.Kind, s.Key, s.New)
		}
	}
	for _, s := range p.Left {
		fmt.Fprintf(&b, "! %s %s=%s stays: another client wrote it (wanted %s)\n", s.Kind, s.Key, s.Old, s.New)
	}
	return b.String()
}
