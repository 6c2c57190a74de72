package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/hold"
)

// recent is how long an Event counts, unless it publishes a hold: the controller emits it once, and its cause may be gone. Events that publish
// holds are deleted when these end.
const recent = 10 * time.Minute

// manager is the component of the Events of the controller.
const manager = "assay-controller"

// reported are the reasons of Warning Events that no condition or other object shows, with what to do. Other checks report what the others are
// about.
var reported = map[string]string{
	"AdditionHeld":        "If the nodes are broken, confirm: see healthBudget in docs/hardware-health.md; otherwise correct the rule",
	"DevicesHeld":         "See the DRA driver of the Node: kubectl get resourceslices",
	"DevicesOverLimit":    "Let the driver publish fewer devices, or read fewer drivers",
	"EvictionHeld":        "Confirm with a larger noExecuteBudget, or wait",
	"FeatureSetsMissing":  "The worker creates them again; otherwise restart its pod",
	"FeaturesLost":        "The message names the rule and the feature: find out why the Node lost it",
	"LossTaintAdded":      "The message names the feature that a pod requires: find out why the Node lost it",
	"NoNodeName":          "Give the NodeFeature the label nfd.node.kubernetes.io/node-name",
	"NodeFeatureInvalid":  "Correct the publisher that the message names, or delete its NodeFeature",
	"NodeFeatureTooLarge": "Let the publisher that the message names publish less",
	"RemovalHeld":         "If the removal is intended, see removalBudget in docs/robustness.md; otherwise find out why many Nodes lose a feature",
	"StartupTaintTimeout": "The message says why the Node was not ready in time",
	"TooManyNodeFeatures": "Delete NodeFeatures of publishers that do not need them",
	"UnmetLabelRemoved":   "Correct the labels of the node pool",
	"WrongFeatureSet":     "The message names the Node that created it: see its worker",
}

// events reports recent Warning Events of the controller, those with one reason as one line.
func (e *examination) events(ctx context.Context) error {
	all, err := e.c.Warnings(ctx)
	if err != nil {
		return err
	}
	byReason := map[string][]*corev1.Event{}
	for i := range all {
		ev := &all[i]
		at := ev.LastTimestamp.Time
		if at.IsZero() {
			at = ev.CreationTimestamp.Time
		}
		if ev.Source.Component == manager && reported[ev.Reason] != "" && (e.c.Now().Sub(at) < recent || len(hold.Read(ev)) > 0) {
			byReason[ev.Reason] = append(byReason[ev.Reason], ev)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		list := byReason[reason] // the latest first, then by object
		slices.SortFunc(list, func(a, b *corev1.Event) int {
			return cmp.Or(b.LastTimestamp.Compare(a.LastTimestamp.Time), cmp.Compare(objectOf(a), objectOf(b)))
		})
		var objects []string
		for _, ev := range list {
			if name := objectOf(ev); !slices.Contains(objects, name) {
				objects = append(objects, name)
			}
		}
		e.report("events", Warning, fmt.Sprintf("%s on %s: %s", reason, some(objects), list[0].Message), reported[reason])
	}
	return nil
}

func objectOf(ev *corev1.Event) string { return ev.InvolvedObject.Kind + " " + ev.InvolvedObject.Name }
