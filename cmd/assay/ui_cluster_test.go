package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/doctor"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
)

// uiPage returns a page of assay ui for a cluster.
func uiPage(t *testing.T, objects map[string]any, page string) string {
	t.Helper()
	f, cmd := &uiFlags{faults: doctor.WorkerFaults}, &cobra.Command{}
	f.AddFlags(cmd)
	if err := cmd.ParseFlags([]string{"--kubeconfig", fakeAPI(t, objects)}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := f.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := ui.New(snapshot, f.snapshot)
	listener, err := ui.Listen(ui.DefaultAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, err := url.Parse(server.URL(listener))
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	server.Handler(t.Context()).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+address.Path+page, nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", page, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// TestUISaysWhyTheNodeLacksAnOutput: the page of a node says in the first column of an output what the controller reports about it.
func TestUISaysWhyTheNodeLacksAnOutput(t *testing.T) {
	until := time.Now().Add(40 * time.Minute).UTC().Truncate(time.Second)
	for name, tc := range map[string]struct{ reason, why, state, says string }{
		"Suppressed": {hold.Flapping, "it changed", "suppressed", "the Node has theirs instead; flapping until " + until.Format(time.RFC3339)},
		"Contested":  {hold.Contested, "another client", "contested", "another client"},
		"Rejected":   {hold.Refused, "the API server rejects it", "rejected", "the API server rejects it"},
		"Held":       {hold.Removal, "removalBudget: too many", "held", "removalBudget: too many"},
		"NotWritten": {"Other", "", "not written", "the Node has theirs instead; no replica of the controller holds Lease"},
	} {
		t.Run(name, func(t *testing.T) {
			page := uiPage(t, map[string]any{
				"/api/v1/nodes":         list(object{"metadata": object{"name": "a", "uid": "now", "labels": object{"example.com/value": "theirs"}}}),
				nfdAPI + "nodefeatures": list(fakeFeatures("a", "AVX")),
				nfdAPI + "nodefeaturerules": list(object{"metadata": object{"name": "gpu"}, "spec": object{"rules": []object{
					{"name": "gives", "labels": object{"example.com/value": "ours"}},
				}}}),
				"/api/v1/events": list(heldEvent("a", tc.reason, until, tc.why, "label example.com/value")),
			}, "node?name=a&table=outputs&format=csv")
			if line := strings.Split(page, "\n")[1]; !strings.HasPrefix(line, tc.state+",") || !strings.Contains(line, tc.says) {
				t.Errorf("the output is %s", line)
			}
		})
	}
}

// TestUISaysWhoSetAKeyThatNoRuleGives: keys that Assay keeps, and its own records, were listed as set by other clients.
func TestUISaysWhoSetAKeyThatNoRuleGives(t *testing.T) {
	until := time.Now().Add(40 * time.Minute).UTC().Truncate(time.Second)
	r := &record.Record{Whole: true}
	r.Add(record.Owner{ID: "uid-1", Name: "gpu"}, record.KeyOf(keys.Label, "example.com/kept"))
	r.Add(record.Owner{ID: "uid-1", Name: "gpu"}, record.KeyOf(keys.Resource, "example.com/cards"))
	for name, tc := range map[string]struct {
		event         string
		message       string
		rule          object
		kept, nothing string
	}{
		"Held":        {hold.Removal, "removalBudget: too many", nil, "held,removal held until " + until.Format(time.RFC3339), ""},
		"Suppressed":  {hold.Flapping, "it changed", nil, "suppressed,flapping until " + until.Format(time.RFC3339), ""},
		"Unexplained": {"Other", "", nil, `kept,"written by Assay; no rule or NodeFeature gives it now; no replica of the controller holds Lease`, ""},
		"ARuleFails":  {"Other", "", object{"name": "fails", "actions": []object{{"op": "fail", "args": object{"msg": "broken"}}}}, "kept,written by Assay; nothing is written on the Node while gpu/fails fails", ""},
		"Given":       {"Other", "", object{"name": "gives", "labels": object{"example.com/kept": "true"}}, "", "example.com/kept"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []object{{"name": "gave", "labels": object{"example.com/kept": "true"}, "matchFeatures": []object{
				{"feature": "cpu.cpuid", "matchExpressions": object{"GPU": object{"op": "Exists"}}},
			}}}
			if tc.rule != nil {
				rules = append(rules, tc.rule)
			}
			table := func(id string) string {
				return uiPage(t, map[string]any{
					"/api/v1/nodes": list(object{
						"metadata": object{
							"name": "a", "uid": "now", "labels": object{"example.com/kept": "true", "example.com/theirs": "true"},
							"annotations": object{
								"nfd.node.kubernetes.io/feature-labels": "example.com/kept", "nfd.node.kubernetes.io/extended-resources": "example.com/cards",
							},
							"managedFields": labelManagers("kubectl-edit", "example.com/theirs"),
						},
						"status": object{"capacity": object{"cpu": "8", "example.com/cards": "2", "example.com/theirs": "1"}},
					}),
					nfdAPI + "nodefeatures":     list(fakeFeatures("a", "AVX")),
					nfdAPI + "nodefeaturerules": list(object{"metadata": object{"name": "gpu", "uid": "uid-1"}, "spec": object{"rules": rules}}),
					"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": object{
						"metadata": object{"name": "assay-kept-rules"}, "data": object{record.DataKey: r.Encode()},
					},
					"/api/v1/events": list(heldEvent("a", tc.event, until, tc.message, "label example.com/kept")),
				}, "node?name=a&format=csv&table="+id)
			}
			kept := table("kept")
			if !strings.Contains(kept, tc.kept) || tc.kept != "" && !strings.Contains(kept, ",label,example.com/kept,true,NodeFeatureRule gpu\n") {
				t.Errorf("kept are, without %q:\n%s", tc.kept, kept)
			}
			if !strings.Contains(kept, "extended resource,example.com/cards,2,NodeFeatureRule gpu\n") {
				t.Errorf("kept are, without the resource:\n%s", kept)
			}
			if tc.nothing != "" && strings.Contains(kept, tc.nothing) {
				t.Errorf("kept are, with %q:\n%s", tc.nothing, kept)
			}
			if own := table("own"); strings.Count(own, "a record of the keys that it has written") != 2 || strings.Count(own, "\n") != 3 {
				t.Errorf("written by Assay itself are:\n%s", own)
			}
			if others := table("others"); others != "kind,key,value,client\nlabel,example.com/theirs,true,kubectl-edit\nextended resource,example.com/theirs,1,unknown\n" {
				t.Errorf("set by others are:\n%s", others)
			}
		})
	}
}

// TestUIShowsTheWorker: a node whose worker was down looked like any other.
func TestUIShowsTheWorker(t *testing.T) {
	labels := object{"app.kubernetes.io/part-of": "assay", "app.kubernetes.io/component": "worker"}
	page := uiPage(t, map[string]any{
		"/api/v1/nodes":             list(fakeNode("a"), fakeNode("b")),
		nfdAPI + "nodefeatures":     list(fakeFeatures("a", "AVX"), fakeFeatures("b", "AVX")),
		nfdAPI + "nodefeaturerules": list(),
		"/apis/apps/v1/namespaces/assay-system/daemonsets": list(object{
			"metadata": object{"name": "worker", "namespace": "assay-system", "labels": labels}, "spec": object{"selector": object{"matchLabels": object{"app": "worker"}}},
		}),
		"/api/v1/namespaces/assay-system/pods": list(
			object{"metadata": object{"name": "w-a", "namespace": "assay-system"}, "spec": object{"nodeName": "a"}, "status": object{"containerStatuses": []object{{"name": "worker", "ready": true}}}},
			object{"metadata": object{"name": "w-b", "namespace": "assay-system"}, "spec": object{"nodeName": "b"}, "status": object{"containerStatuses": []object{
				{"name": "worker", "state": object{"waiting": object{"reason": "CrashLoopBackOff"}}},
			}}},
		),
	}, "fleet?by=nodes&filter=worker+%3D+down&format=csv")
	if !strings.Contains(page, "\nb,") || strings.Contains(page, "\na,") || !strings.Contains(page, "container worker is waiting: CrashLoopBackOff") {
		t.Errorf("nodes whose worker is down:\n%s", page)
	}
}

// TestUICountsTheLabelsThatAPodSelects: the page of a pod that selects a label which no node has said that all nodes can run it.
func TestUICountsTheLabelsThatAPodSelects(t *testing.T) {
	const label = "feature.node.kubernetes.io/cpu-cpuid.AMXTILE"
	api := fakeCluster()
	pod := object{
		"metadata": object{"namespace": "ml", "name": "selects"}, "spec": object{"nodeSelector": object{label: "true"}},
	}
	api["/api/v1/namespaces/ml/pods/selects"], api["/api/v1/pods"] = pod, list(pod)
	for address, wants := range map[string][]string{
		"pod?namespace=ml&name=selects":        {"0 of 3 nodes meet its requirements", "node label requirement not met: " + label + "=true (no node has it)"},
		"pod?namespace=ml&name=selects&node=b": {"node selector " + label + "=true", "label " + label + " is missing"},
		"pods":                                 {label},
	} {
		page := uiPage(t, api, address)
		for _, text := range wants {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q", address, text)
			}
		}
	}
}

// TestUIShowsTheLevelsOfTheCluster: the page judges nodes as assay baseline levels does, and judges none if Nodes cannot be read.
func TestUIShowsTheLevelsOfTheCluster(t *testing.T) {
	placed := func(name, rack string) object {
		return object{"metadata": object{"name": name, "labels": object{"example.com/rack": rack, "kubernetes.io/hostname": name}}}
	}
	api := map[string]any{
		"/api/v1/nodes":             list(placed("a", "r1"), placed("b", ""), placed("unpublished", "r1")),
		nfdAPI + "nodefeatures":     list(fakeFeatures("a", "AVX"), fakeFeatures("b", "AVX")),
		nfdAPI + "nodefeaturerules": list(),
		"/apis/assay.dev/v1alpha1/nodebaselines": list(object{"metadata": object{"name": "fabric"}, "spec": object{"levels": []object{
			{"name": "rack", "label": "example.com/rack"}, {"name": "host", "label": "kubernetes.io/hostname"},
		}}}),
	}
	page := uiPage(t, api, "fleet?by=levels")
	for _, part := range []string{"fabric: 3 nodes by rack, host; 1 deviates, 1 unknown", `<a href="node?name=b">b`, "example.com/rack is missing"} {
		if !strings.Contains(strings.NewReplacer("<bdi>", "", "</bdi>", "").Replace(page), part) {
			t.Errorf("the page has no %q:\n%s", part, page)
		}
	}
	api["/api/v1/nodes"] = denied("nodes is forbidden")
	if page := uiPage(t, api, "fleet?by=levels"); strings.Contains(page, "deviate") || !strings.Contains(page, "The levels are not known.") {
		t.Errorf("the page without Nodes is:\n%s", page)
	}
}
