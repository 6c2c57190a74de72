// Package hold is the published form of what the controller leaves as it is on a Node for a while, and why. The controller alone knows the
// reasons: it publishes them as Events of a Node with data, and other programs print these. It does not use a client.
package hold

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

// The reasons of holds, which are those of their Events.
const (
	// Removal is the reason while the removal budget or removalGracePeriod holds removals.
	Removal = "RemovalHeld"
	// Addition is the reason while the budget of health holds taints and conditions.
	Addition = "AdditionHeld"
	// Devices is the reason while the last devices of DRA drivers count whose pools are incomplete or gone.
	Devices = "DevicesHeld"
	// Flapping is the reason while a key is left alone that changes too often.
	Flapping = "KeyFlapping"
	// Contested is the reason while a key is left alone that another client keeps changing back.
	Contested = "KeyContested"
	// Refused is the reason while a key is left out that the API server rejects.
	Refused = "KeyRefused"
	// Eviction is the reason while a taint that evicts pods waits.
	Eviction = "EvictionHeld"
	// Unread is the reason while the value of a key is unknown, because the worker has not read a source or a definition is not whole.
	Unread = "ValueUnknown"
	// Incomplete is the reason while the controller lacks NodeFeatures of the node.
	Incomplete = "FeaturesIncomplete"
)

// The reasons of other Events about keys.
const (
	// AnotherMaster is the reason when another program removes keys that rules give, together with their record.
	AnotherMaster = "AnotherMaster"
	// DevicesOver is the reason while pools of devices are left out because a node has too many devices.
	DevicesOver = "DevicesOverLimit"
	// Lost is the reason after keys were removed because the features of the node changed.
	Lost = "FeaturesLost"
)

// leads are the first words of the messages.
var leads = map[string]string{
	Removal: "Removal held", Addition: "Addition held", Devices: "Devices held", Flapping: "Left as it is", Contested: "Not corrected", Refused: "Not written",
	Eviction: "Taint held", Unread: "Left as it is", Incomplete: "Left as it is",
}

// Reasons are the reasons of holds, sorted.
func Reasons() []string {
	out := make([]string, 0, len(leads))
	for reason := range leads {
		out = append(out, reason)
	}
	slices.Sort(out)
	return out
}

// Hold is a reason for which keys of a Node are left as they are.
type Hold struct {
	Reason string `json:"reason"`
	// Until is the time at which the controller acts, unless the reason is gone before; the zero time: there is none.
	Until time.Time `json:"until,omitzero"`
	// Why is for people.
	Why string `json:"why"`
	// Keys come from Key, sorted as the steps of plans. None: the hold is about all keys that depend on the features which still count.
	Keys []string `json:"keys,omitempty"`
	// More is the number of keys that are left out.
	More int `json:"more,omitempty"`
}

// Same reports whether two holds say the same. Times that are computed in different passes differ by less than a second.
func (h Hold) Same(other Hold) bool {
	return h.Reason == other.Reason && h.Why == other.Why && h.Until.IsZero() == other.Until.IsZero() &&
		h.Until.Sub(other.Until).Abs() <= time.Second && slices.Equal(h.Keys, other.Keys)
}

// Has reports whether the hold names a key.
func (h Hold) Has(kind keys.Kind, key string) bool { return slices.Contains(h.Keys, Key(kind, key)) }

// Key returns the kind and name of a key as messages name it.
func Key(kind keys.Kind, key string) string { return string(kind) + " " + key }

// MaxKeys is the maximum number of keys that a message names. A Node can lose a hundred keys at once, and the message of an Event has at most
// 1024 bytes.
const MaxKeys = 5

// Some joins at most MaxKeys keys, the most important ones, and says how many others there are.
func Some(list []string) string {
	return clip.Join(byImportance(list), ", ", MaxKeys)
}

// byImportance sorts the results of Key.
func byImportance(list []string) []string {
	return slices.SortedStableFunc(slices.Values(list), Compare)
}

// Compare compares results of Key by importance: what a list with a limit leaves out matters least. A hold of all keys is "".
func Compare(a, b string) int {
	kindA, keyA, _ := strings.Cut(a, " ")
	kindB, keyB, _ := strings.Cut(b, " ")
	return keys.CompareImportance(keys.Kind(kindA), keyA, keys.Kind(kindB), keyB)
}

// String returns the message for people.
func (h Hold) String() string {
	text := leads[h.Reason]
	if !h.Until.IsZero() {
		text += " until " + h.Until.UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	text += ": " + h.Why
	if len(h.Keys) > 0 {
		text += ": " + Some(h.Keys)
	}
	return text
}

const (
	// Component is the reporting component of Events with holds. The policy assay-holds reserves it to the controller.
	Component = "assay.dev/controller"
	// Annotation has the holds of an Event as JSON.
	Annotation = "assay.dev/holds"
	// Label is on each Event with holds. Its value is the instance of the controller.
	Label = "assay.dev/holds"
	// Omitted is the annotation of the Event that counts the nodes whose holds are not published.
	Omitted = "assay.dev/holds-omitted"
	// PolicyName is the name of the ValidatingAdmissionPolicy that reserves Component to the controller.
	PolicyName = "assay-holds"
	// Namespace is that of Events about Nodes.
	Namespace = metav1.NamespaceDefault
	// MaxBytes is the maximum size of the annotation. A Node with 140 keys needs 8 kB.
	MaxBytes = 32 << 10
	// maxMessage is the maximum size of the message of an Event.
	maxMessage = 1024
)

// EventName returns the name of the Event about the holds of a Node for one reason.
func EventName(instance, node, reason string) string {
	name := strings.ToLower("assay." + reason)
	if instance != "" {
		name = strings.ToLower(instance) + "." + name
	}
	if out := node + "." + name; len(out) <= 253 { // the limit of names of objects
		return out
	}
	sum := sha256.Sum256([]byte(node))
	return fmt.Sprintf("%x.%s", sum[:16], name)
}

// Event returns the Event about holds of a Node that have one reason.
func Event(instance string, node *corev1.Node, list []Hold, now time.Time) *corev1.Event {
	reason, kind := list[0].Reason, corev1.EventTypeWarning
	if reason == Unread || reason == Incomplete {
		kind = corev1.EventTypeNormal
	}
	texts := make([]string, len(list))
	for i, h := range list {
		texts[i] = h.String()
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: EventName(instance, node.Name, reason), Labels: map[string]string{Label: instance},
			Annotations: map[string]string{Annotation: encode(list)},
		},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Type:           kind, Reason: reason, Message: clip.Text(strings.Join(texts, ". "), maxMessage),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{Component: "assay-controller"}, ReportingController: Component,
	}
}

// encode returns holds as JSON of at most MaxBytes. It leaves the least important keys out if there are too many.
func encode(list []Hold) string {
	left := MaxBytes
	out := make([]Hold, 0, len(list))
	for _, h := range list {
		h.Why = clip.Text(h.Why, maxMessage)
		all := byImportance(h.Keys)
		h.Keys = nil
		left -= len(h.Why) + len(`{"until":"2006-01-02T15:04:05.999999999Z","why":"","keys":[],"more":12345},`) + 64
		for _, key := range all {
			if left -= 2*len(key) + 3; left < 0 {
				break
			}
			h.Keys = append(h.Keys, key)
		}
		h.More = len(all) - len(h.Keys)
		if h.Until = h.Until.UTC(); len(all) > 0 && len(h.Keys) == 0 {
			continue // without keys it would be about all
		}
		out = append(out, h)
	}
	data, _ := json.Marshal(out) // strings and times always marshal
	return string(data)
}

// keysAnnotation has the keys that another Event is about.
const keysAnnotation = "assay.dev/keys"

// AboutKeys returns the annotations of an Event about keys.
func AboutKeys(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	data, _ := json.Marshal(list) // strings always marshal
	return map[string]string{keysAnnotation: string(data)}
}

// KeysOf returns the keys that an Event of another kind is about.
func KeysOf(e *corev1.Event) (out []string) {
	_ = json.Unmarshal([]byte(e.Annotations[keysAnnotation]), &out) // a client may have written anything there
	return out
}

// Read returns the holds that an Event publishes; none: it is not one of the controller.
func Read(e *corev1.Event) []Hold {
	var out []Hold
	if e.ReportingController != Component || leads[e.Reason] == "" || json.Unmarshal([]byte(e.Annotations[Annotation]), &out) != nil {
		return nil
	}
	for i := range out {
		out[i].Reason = e.Reason
	}
	return out
}

// OmittedEvent returns the Event about nodes whose holds are not published, because those of most other nodes are. It is about the namespace of
// the controller.
func OmittedEvent(instance, namespace string, nodes, most int, now time.Time) *corev1.Event {
	at := metav1.NewTime(now.Truncate(time.Second))
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: EventName(instance, namespace, "omitted"), Annotations: map[string]string{Omitted: strconv.Itoa(nodes)},
		},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace},
		Type:           corev1.EventTypeNormal, Reason: "HoldsOmitted",
		Message:        fmt.Sprintf("The controller leaves keys as they are on %d more nodes than the %d whose reasons it publishes", nodes, most),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{Component: "assay-controller"}, ReportingController: Component,
	}
}
