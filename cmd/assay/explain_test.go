package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
)

// TestExplainSaysWhyANodeDiffers: a key has another value, is missing or stays because of what the controller reports.
func TestExplainSaysWhyANodeDiffers(t *testing.T) {
	const lease = "/apis/coordination.k8s.io/v1/namespaces/assay-system/leases/nfd-master.nfd.kubernetes.io"
	r := &record.Record{Whole: true}
	r.Add(record.Owner{ID: "uid-1", Name: "gpu"}, record.KeyOf(keys.Label, "example.com/kept"))
	needs := func(flag string) []clustertest.Object {
		return []clustertest.Object{{"feature": "cpu.cpuid", "matchExpressions": clustertest.Object{flag: clustertest.Object{"op": "Exists"}}}}
	}
	base := func() map[string]any {
		return map[string]any{
			"/api/v1/nodes/a": clustertest.Object{"metadata": clustertest.Object{
				"name": "a", "uid": "now", "labels": clustertest.Object{"example.com/value": "theirs", "example.com/kept": "true"},
				"annotations":   clustertest.Object{"nfd.node.kubernetes.io/feature-labels": "example.com/kept,example.com/value"},
				"managedFields": clustertest.LabelManagers("kubectl-edit", "example.com/value"),
			}},
			clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "AVX")),
			clustertest.NFD + "nodefeaturerules": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "gpu", "uid": "uid-1"}, "spec": clustertest.Object{"rules": []clustertest.Object{
				{"name": "gives", "labels": clustertest.Object{"example.com/value": "ours", "example.com/new": "true"}, "matchFeatures": needs("AVX")},
				{"name": "gave", "labels": clustertest.Object{"example.com/kept": "true", "example.com/lost": "true"}, "matchFeatures": needs("GPU")},
			}}}),
			"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": clustertest.Object{
				"metadata": clustertest.Object{"name": "assay-kept-rules"}, "data": clustertest.Object{record.DataKey: r.Encode()},
			},
			lease: clustertest.Object{"spec": clustertest.Object{
				"holderIdentity": "controller-1_x", "leaseDurationSeconds": 15, "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
			}},
		}
	}
	until := time.Now().Add(40 * time.Minute).UTC().Truncate(time.Second)
	event := func(reason string, until time.Time, why string, keys ...string) clustertest.Object {
		return clustertest.HeldEvent("a", reason, until, why, keys...)
	}
	at := until.Format(time.RFC3339)
	for name, tc := range map[string]struct {
		key    string
		change func(map[string]any)
		want   []string
		state  string
		reason string
	}{
		"AKeyFlaps": {
			"example.com/value", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Flapping, until, "it changed", "label example.com/value"))
			},
			[]string{"the Node has theirs instead", "flapping until " + at + " (in 40m0s): it changed\n", "from gpu/gives"}, "Different", hold.Flapping,
		},
		"AKeyIsContested": {
			"example.com/value", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Contested, until, "another client", "label example.com/a", "label example.com/value"))
			},
			[]string{"the Node has theirs instead, set by kubectl-edit", "contested until " + at}, "Different", hold.Contested,
		},
		"TheAPIServerRejectsAKey": {
			"example.com/new", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Refused, until, "the API server rejects it: no", "label example.com/new"))
			},
			[]string{"the Node does not have it", "not accepted until " + at + " (in 40m0s): the API server rejects it: no\n"}, "Missing", hold.Refused,
		},
		"TheBudgetHoldsAKey": {
			"example.com/kept", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Removal, until, "removalBudget: too many", "label example.com/kept"))
			},
			[]string{"no rule or NodeFeature gives it now", "removal held until " + at + " (in 40m0s): removalBudget: too many\n", "set by NodeFeatureRule gpu\nSKIP   gpu/gave\n", "cpu.cpuid/GPU"},
			"Kept", hold.Removal,
		},
		"AnEventHoldsMoreKeysThanItsMessageNames": {
			"example.com/value", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Flapping, until, "it changed", "label a", "label b", "label c", "label d", "label e", "label f", "label example.com/value"))
			},
			[]string{"flapping until " + at}, "Different", hold.Flapping,
		},
		"ASourceIsUnread": {
			"example.com/kept", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Unread, time.Time{}, "the worker has not read pci", "label example.com/kept"))
			},
			[]string{"no rule or NodeFeature gives it now\n  unknown: the worker has not read pci\n"}, "Kept", hold.Unread,
		},
		"AnotherClientWritesTheEvent": {
			"example.com/value", func(o map[string]any) {
				e := event(hold.Flapping, until, "it changed", "label example.com/value")
				e["reportingComponent"] = "mallory"
				o["/api/v1/events"] = clustertest.List(e)
			},
			[]string{"it reports no reason"}, "Different", "",
		},
		"EveryClientCanWriteTheEvent": {
			"example.com/value", func(o map[string]any) {
				o["/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"+hold.PolicyName] = nil
				o["/api/v1/events"] = clustertest.List(event(hold.Flapping, until, "it changed", "label example.com/value"))
			},
			[]string{"it changed (not verified: without the policy assay-holds every client that may create Events can have written this)"}, "Different", hold.Flapping,
		},
		"TheWorkersObjectIsGone": {
			"example.com/kept", func(o map[string]any) {
				o[clustertest.NFD+"nodefeatures"] = clustertest.List()
				o["/api/v1/events"] = clustertest.List(event(hold.Removal, until, "removalGracePeriod: NodeFeature assay-system/a was deleted"))
			},
			[]string{"removal held until " + at, "removalGracePeriod: NodeFeature assay-system/a was deleted"}, "Kept", hold.Removal,
		},
		"AnEventAboutTheWorkersObjectIsOld": {
			"example.com/kept", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Removal, until, "removalGracePeriod: NodeFeature assay-system/a was deleted"))
			},
			[]string{"the controller runs: controller-1 renewed Lease assay-system/nfd-master.nfd.kubernetes.io", "reports no reason"}, "Kept", "",
		},
		"TheControllerCountsDevicesThatAreAway": {
			"example.com/kept", func(o map[string]any) {
				rules := o[clustertest.NFD+"nodefeaturerules"].(clustertest.Object)["items"].([]any)[0].(clustertest.Object)["spec"].(clustertest.Object)["rules"].([]clustertest.Object)
				rules[1]["matchFeatures"] = []clustertest.Object{{"feature": "dra.device", "matchExpressions": clustertest.Object{"device.name": clustertest.Object{"op": "Exists"}}}}
				o["/apis/resource.k8s.io/v1/resourceslices"] = clustertest.List()
				o["/api/v1/events"] = clustertest.List(event(hold.Devices, until, "removalGracePeriod: the ResourceSlices of the DRA driver gpu.example.com are incomplete or gone"))
			},
			[]string{"devices held until " + at + " (in 40m0s): removalGracePeriod: the ResourceSlices of the DRA driver gpu.example.com are incomplete or gone"},
			"Kept", hold.Devices,
		},
		"DevicesAreAwayThatTheRuleDoesNotRead": {
			"example.com/kept", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Devices, until, "removalGracePeriod: the ResourceSlices of the DRA driver gpu.example.com are incomplete or gone"))
			},
			[]string{"it reports no reason"}, "Kept", "",
		},
		"AHoldIsOver": {
			"example.com/value", func(o map[string]any) {
				o["/api/v1/events"] = clustertest.List(event(hold.Flapping, time.Now().Add(-time.Minute), "it changed", "label example.com/value"))
			},
			[]string{"the Node has theirs instead, set by kubectl-edit; the controller runs"}, "Different", "",
		},
		"AnEventIsAboutAnEarlierNode": {
			"example.com/value", func(o map[string]any) {
				e := event(hold.Flapping, until, "it changed", "label example.com/value")
				e["involvedObject"].(clustertest.Object)["uid"] = "before"
				o["/api/v1/events"] = clustertest.List(e)
			},
			[]string{"the controller runs"}, "Different", "",
		},
		"NothingIsReported": {
			"example.com/new", func(map[string]any) {}, []string{"the Node does not have it; the controller runs", "it reports no reason"}, "Missing", "",
		},
		"TheControllerIsDead": {
			"example.com/new", func(o map[string]any) {
				o[lease].(clustertest.Object)["spec"].(clustertest.Object)["renewTime"] = time.Now().Add(-10 * time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z")
			},
			[]string{"the Node does not have it; the controller does not run: controller-1 has not renewed Lease"}, "Missing", "",
		},
		"NoController": {
			"example.com/new", func(o map[string]any) { delete(o, lease) }, []string{"no replica of the controller holds Lease"}, "Missing", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := base()
			tc.change(objects)
			kubeconfig := clustertest.Serve(t, objects)
			out, code := runCommand(t, kubeconfig, "explain", "a", tc.key)
			for _, text := range tc.want {
				if code != 0 || !strings.Contains(strings.ReplaceAll(out, "39m59s", "40m0s"), text) {
					t.Errorf("exit code %d; %q is missing in:\n%s", code, text, out)
				}
			}
			if strings.Contains(out, "is the controller running") {
				t.Errorf("explain asks a question:\n%s", out)
			}
			out, _ = runCommand(t, kubeconfig, "explain", "a", tc.key, "-o", "json")
			var got struct {
				Keys []struct {
					State string
					Hold  struct {
						Reason string
						Until  time.Time
					}
				}
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Keys) != 1 {
				t.Fatalf("%v:\n%s", err, out)
			}
			if k := got.Keys[0]; k.State != tc.state || k.Hold.Reason != tc.reason || tc.reason != "" && tc.reason != hold.Unread && !k.Hold.Until.Equal(until) {
				t.Errorf("%+v", k)
			}
		})
	}
	t.Run("AKeyWasRemoved", func(t *testing.T) {
		objects := base()
		e := event(hold.Lost, until, "")
		e["metadata"].(clustertest.Object)["annotations"] = hold.AboutKeys([]string{"label example.com/lost"})
		e["message"] = "Removed because the features of the node changed: label example.com/lost=true (rule gpu/gave: cpu.cpuid of NodeFeature assay-system/a)"
		objects["/api/v1/events"] = clustertest.List(e)
		out, code := runCommand(t, clustertest.Serve(t, objects), "explain", "a", "example.com/lost")
		for _, text := range []string{"a has no example.com/lost.\nFeaturesLost ", "ago: Removed because the features of the node changed", "1 rule could set it", "SKIP   gpu/gave"} {
			if code != 1 || !strings.Contains(out, text) {
				t.Errorf("exit code %d; %q is missing in:\n%s", code, text, out)
			}
		}
	})
}
