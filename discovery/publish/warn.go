package publish

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReasonInvalidConfiguration is the reason of the Event about a changed configuration that a running program rejects.
const ReasonInvalidConfiguration = "InvalidConfiguration"

// maxMessageBytes is the maximum size of the message of an Event, as in Kubernetes' own recorders.
const maxMessageBytes = 1024

// Own returns the node and pod of this process: of its bound token, or of the environment variables POD_NAME and POD_UID. Unknown fields
// are empty.
func Own(tokenFile string) Identity {
	id := Identity{}
	if token, err := os.ReadFile(tokenFile); err == nil {
		id, _ = FromToken(token)
	}
	return id.Or(Identity{Pod: os.Getenv("POD_NAME"), PodUID: os.Getenv("POD_UID")})
}

// Warn creates an Event of the type Warning about the pod of this process, in a namespace, unless the pod is unknown. It needs the
// permission to create Events there.
func (c *Client) Warn(ctx context.Context, namespace string, own Identity, component, reason, message string) error {
	if own.Pod == "" {
		return nil
	}
	now := metav1.NewTime(time.Now())
	body, err := json.Marshal(corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: own.Pod + ".", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: own.Pod, UID: types.UID(own.PodUID),
		},
		Reason: reason, Message: strings.ToValidUTF8(message[:min(len(message), maxMessageBytes)], ""), Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: component, Host: own.Node}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: component, ReportingInstance: own.Pod,
	})
	if err != nil {
		return err
	}
	var created metav1.PartialObjectMetadata
	return c.do(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/events", metadataOnly, "application/json", body, &created)
}
