package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Identity says on whose behalf a worker publishes. Fields that are not known are empty.
type Identity struct {
	Node      string
	NodeUID   string
	Pod       string
	PodUID    string
	Namespace string
}

// maxTokenBytes bounds the token that is parsed; real ones have about 1 KiB.
const maxTokenBytes = 64 << 10

// FromToken reads the node and the pod that a bound ServiceAccount token is bound to. The signature is not checked: the
// token is our own, handed to us by the kubelet, and the API server checks it with every request. Claims that the cluster
// does not issue (the node's: before Kubernetes 1.30) are left empty.
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

// Or fills what is not known from other. The UID of a node or a pod is taken only along with the same name.
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

// complete reports whether nothing is left to be found out for the given owners.
func (id Identity) complete(owners []Owner) bool {
	for _, o := range owners {
		if o == OwnerNode && id.NodeUID == "" {
			return false
		}
	}
	return id.Node != ""
}

// Owner is something that may own a NodeFeature: when it goes, the garbage collector takes the NodeFeature along.
type Owner string

// The owners. A Node is the right one for nearly everybody: the labels of a node then outlive every restart and upgrade of
// the worker. Pod and DaemonSet are what NFD uses by default.
const (
	OwnerNode      Owner = "node"
	OwnerPod       Owner = "pod"
	OwnerDaemonSet Owner = "ds"
)

// ParseOwners reads a comma-separated list of node, pod and ds. "none" or an empty text is nobody.
func ParseOwners(text string) ([]Owner, error) {
	owners := []Owner{}
	for name := range strings.SplitSeq(text, ",") {
		switch o := Owner(strings.TrimSpace(name)); o {
		case OwnerNode, OwnerPod, OwnerDaemonSet:
			owners = append(owners, o)
		case "", "none":
		default:
			return nil, fmt.Errorf("unknown owner %q: write node, pod, ds or none", name)
		}
	}
	return owners, nil
}
