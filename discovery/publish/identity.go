package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Identity identifies the node and the pod of a worker. Unknown fields are empty.
type Identity struct {
	Node      string
	NodeUID   string
	Pod       string
	PodUID    string
	Namespace string
}

// maxTokenBytes is the maximum size of a token; real ones have about 1 KiB.
const maxTokenBytes = 64 << 10

// FromToken reads the node and the pod from a bound ServiceAccount token. It does not verify the signature: the token is the
// worker's own, from the kubelet, and the API server verifies it with every request. Claims that the cluster does not issue (the
// node's before Kubernetes 1.30) are empty.
//
// See KEP-4193, bound service account token improvements.
func FromToken(token []byte) (Identity, error) {
	if len(token) > maxTokenBytes {
		return Identity{}, fmt.Errorf("service account token has %d bytes, more than %d", len(token), maxTokenBytes)
	}
	parts := bytes.Split(bytes.TrimSpace(token), []byte("."))
	if len(parts) != 3 {
		return Identity{}, errors.New("service account token is not a JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		return Identity{}, fmt.Errorf("service account token: payload: %w", err)
	}
	type ref struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	}
	var claims struct {
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Node      ref    `json:"node"`
			Pod       ref    `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return Identity{}, fmt.Errorf("service account token: claims: %w", err)
	}
	k := claims.Kubernetes
	return Identity{
		Node: k.Node.Name, NodeUID: k.Node.UID,
		Pod: k.Pod.Name, PodUID: k.Pod.UID,
		Namespace: k.Namespace,
	}, nil
}

// Or fills unknown fields from other. It only takes the UID of a node or pod if the names are equal.
func (id Identity) Or(other Identity) Identity {
	if id.Node == "" {
		id.Node = other.Node
	}
	if id.NodeUID == "" && id.Node == other.Node {
		id.NodeUID = other.NodeUID
	}
	if id.Pod == "" {
		id.Pod = other.Pod
	}
	if id.PodUID == "" && (other.Pod == "" || id.Pod == other.Pod) {
		id.PodUID = other.PodUID
	}
	if id.Namespace == "" {
		id.Namespace = other.Namespace
	}
	return id
}

// complete reports whether all fields for the given owners are known.
func (id Identity) complete(owners []Owner) bool {
	for _, o := range owners {
		if o == OwnerNode && id.NodeUID == "" {
			return false
		}
	}
	return id.Node != ""
}

// Owner is a kind of owner of a NodeFeature: when the owner is deleted, the garbage collector deletes the NodeFeature.
type Owner string

// Kinds of owners. Node is right for most installations: the labels of a node then survive every restart and upgrade of the worker.
// NFD uses Pod and DaemonSet by default.
const (
	OwnerNode      Owner = "node"
	OwnerPod       Owner = "pod"
	OwnerDaemonSet Owner = "ds"
)

// ParseOwners parses a comma-separated list of node, pod and ds. "none" or an empty string means no owner.
func ParseOwners(text string) ([]Owner, error) {
	owners := []Owner{}
	for name := range strings.SplitSeq(text, ",") {
		switch o := Owner(strings.TrimSpace(name)); o {
		case OwnerNode, OwnerPod, OwnerDaemonSet:
			owners = append(owners, o)
		case "", "none":
		default:
			return nil, fmt.Errorf("unknown owner %q: use node, pod, ds or none", name)
		}
	}
	return owners, nil
}
