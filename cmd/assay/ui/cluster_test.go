package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/doctor"
	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
)

// uiPage returns a page of assay ui for a cluster.
func uiPage(t *testing.T, objects map[string]any, page string) string {
	t.Helper()
	f, cmd := &options{faults: doctor.WorkerFaults}, &cobra.Command{}
	f.AddFlags(cmd)
	if err := cmd.ParseFlags([]string{"--kubeconfig", clustertest.Serve(t, objects)}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := f.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := New(snapshot, f.snapshot)
	listener, err := Listen(DefaultAddress)
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
				"/api/v1/nodes":                  clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "a", "uid": "now", "labels": clustertest.Object{"example.com/value": "theirs"}}}),
				clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "AVX")),
				clustertest.NFD + "nodefeaturerules": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "gpu"}, "spec": clustertest.Object{"rules": []clustertest.Object{
					{"name": "gives", "labels": clustertest.Object{"example.com/value": "ours"}},
				}}}),
				"/api/v1/events": clustertest.List(clustertest.HeldEvent("a", tc.reason, until, tc.why, "label example.com/value")),
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
		rule          clustertest.Object
		kept, nothing string
	}{
		"Held":        {hold.Removal, "removalBudget: too many", nil, "held,removal held until " + until.Format(time.RFC3339), ""},
		"Suppressed":  {hold.Flapping, "it changed", nil, "suppressed,flapping until " + until.Format(time.RFC3339), ""},
		"Unexplained": {"Other", "", nil, `kept,"written by Assay; no rule or NodeFeature gives it now; no replica of the controller holds Lease`, ""},
		"ARuleFails":  {"Other", "", clustertest.Object{"name": "fails", "actions": []clustertest.Object{{"op": "fail", "args": clustertest.Object{"msg": "broken"}}}}, "kept,written by Assay; nothing is written on the Node while gpu/fails fails", ""},
		"Given":       {"Other", "", clustertest.Object{"name": "gives", "labels": clustertest.Object{"example.com/kept": "true"}}, "", "example.com/kept"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []clustertest.Object{{"name": "gave", "labels": clustertest.Object{"example.com/kept": "true"}, "matchFeatures": []clustertest.Object{
				{"feature": "cpu.cpuid", "matchExpressions": clustertest.Object{"GPU": clustertest.Object{"op": "Exists"}}},
			}}}
			if tc.rule != nil {
				rules = append(rules, tc.rule)
			}
			table := func(id string) string {
				return uiPage(t, map[string]any{
					"/api/v1/nodes": clustertest.List(clustertest.Object{
						"metadata": clustertest.Object{
							"name": "a", "uid": "now", "labels": clustertest.Object{"example.com/kept": "true", "example.com/theirs": "true"},
							"annotations": clustertest.Object{
								"nfd.node.kubernetes.io/feature-labels": "example.com/kept", "nfd.node.kubernetes.io/extended-resources": "example.com/cards",
							},
							"managedFields": clustertest.LabelManagers("kubectl-edit", "example.com/theirs"),
						},
						"status": clustertest.Object{"capacity": clustertest.Object{"cpu": "8", "example.com/cards": "2", "example.com/theirs": "1"}},
					}),
					clustertest.NFD + "nodefeatures":     clustertest.List(clustertest.Features("a", "AVX")),
					clustertest.NFD + "nodefeaturerules": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "gpu", "uid": "uid-1"}, "spec": clustertest.Object{"rules": rules}}),
					"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": clustertest.Object{
						"metadata": clustertest.Object{"name": "assay-kept-rules"}, "data": clustertest.Object{record.DataKey: r.Encode()},
					},
					"/api/v1/events": clustertest.List(clustertest.HeldEvent("a", tc.event, until, tc.message, "label example.com/kept")),
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
	labels := clustertest.Object{"app.kubernetes.io/part-of": "assay", "app.kubernetes.io/component": "worker"}
	page := uiPage(t, map[string]any{
		"/api/v1/nodes":                      clustertest.List(clustertest.Node("a"), clustertest.Node("b")),
		clustertest.NFD + "nodefeatures":     clustertest.List(clustertest.Features("a", "AVX"), clustertest.Features("b", "AVX")),
		clustertest.NFD + "nodefeaturerules": clustertest.List(),
		"/apis/apps/v1/namespaces/assay-system/daemonsets": clustertest.List(clustertest.Object{
			"metadata": clustertest.Object{"name": "worker", "namespace": "assay-system", "labels": labels}, "spec": clustertest.Object{"selector": clustertest.Object{"matchLabels": clustertest.Object{"app": "worker"}}},
		}),
		"/api/v1/namespaces/assay-system/pods": clustertest.List(
			clustertest.Object{"metadata": clustertest.Object{"name": "w-a", "namespace": "assay-system"}, "spec": clustertest.Object{"nodeName": "a"}, "status": clustertest.Object{"containerStatuses": []clustertest.Object{{"name": "worker", "ready": true}}}},
			clustertest.Object{"metadata": clustertest.Object{"name": "w-b", "namespace": "assay-system"}, "spec": clustertest.Object{"nodeName": "b"}, "status": clustertest.Object{"containerStatuses": []clustertest.Object{
				{"name": "worker", "state": clustertest.Object{"waiting": clustertest.Object{"reason": "CrashLoopBackOff"}}},
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
	api := clustertest.Cluster()
	pod := clustertest.Object{
		"metadata": clustertest.Object{"namespace": "ml", "name": "selects"}, "spec": clustertest.Object{"nodeSelector": clustertest.Object{label: "true"}},
	}
	api["/api/v1/namespaces/ml/pods/selects"], api["/api/v1/pods"] = pod, clustertest.List(pod)
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
	placed := func(name, rack string) clustertest.Object {
		return clustertest.Object{"metadata": clustertest.Object{"name": name, "labels": clustertest.Object{"example.com/rack": rack, "kubernetes.io/hostname": name}}}
	}
	api := map[string]any{
		"/api/v1/nodes":                      clustertest.List(placed("a", "r1"), placed("b", ""), placed("unpublished", "r1")),
		clustertest.NFD + "nodefeatures":     clustertest.List(clustertest.Features("a", "AVX"), clustertest.Features("b", "AVX")),
		clustertest.NFD + "nodefeaturerules": clustertest.List(),
		"/apis/assay.dev/v1alpha1/nodebaselines": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "fabric"}, "spec": clustertest.Object{"levels": []clustertest.Object{
			{"name": "rack", "label": "example.com/rack"}, {"name": "host", "label": "kubernetes.io/hostname"},
		}}}),
	}
	page := uiPage(t, api, "fleet?by=levels")
	for _, part := range []string{"fabric: 3 nodes by rack, host; 1 deviates, 1 unknown", `<a href="node?name=b">b`, "example.com/rack is missing"} {
		if !strings.Contains(strings.NewReplacer("<bdi>", "", "</bdi>", "").Replace(page), part) {
			t.Errorf("the page has no %q:\n%s", part, page)
		}
	}
	api["/api/v1/nodes"] = clustertest.Denied("nodes is forbidden")
	if page := uiPage(t, api, "fleet?by=levels"); strings.Contains(page, "deviate") || !strings.Contains(page, "The levels are not known.") {
		t.Errorf("the page without Nodes is:\n%s", page)
	}
}
