package sim

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// settledStatuses checks that each status is what an evaluation of what the API server stores gives.
func (c *checker) settledStatuses(nodes []object) {
	c.settledBaselines()
	c.settledRules(nodes)
	c.settledGroups(nodes)
	c.settledRequests(nodes)
}

// settledRules checks that the status of each rule is what an evaluation of what the API server stores says.
func (c *checker) settledRules(nodes []object) {
	revision := c.w.server.Revision()
	list, features := c.w.meantAt(revision), c.w.server.At("nodefeatures", revision)
	matched, conflicted, failing := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, o := range nodes {
		name := below(o, "metadata")["name"].(string)
		outcome := c.want.outcome(name, list, byNode(name, features))
		outcome.Matched(func(object string) { matched[object]++ })
		for _, x := range outcome.Conflicts() {
			conflicted[x.Kept.Object], conflicted[x.Lost.Object] = true, true
		}
		for _, r := range outcome.Faulty() {
			failing[r.Object] = true
		}
		for _, r := range outcome.Rejected() {
			failing[r.Object] = failing[r.Object] || !r.Missing
		}
		for g := range outcome.Given() {
			if evicts(string(g.Kind)+" "+g.Key) && !c.bears(o) && c.full(nodes, name) { // it has to wait
				origin, _ := outcome.Origin(g.Kind, g.Key)
				failing[origin.Object] = true
			}
		}
		if c.devicesOf(name) != "" {
			matched[devicesRule]++
		}
	}
	for _, o := range c.w.server.List("nodefeaturerules") {
		name, status := below(o, "metadata")["name"].(string), below(o, "status")
		got := fmt.Sprintf("generation %v, %v nodes, conflicted %s, healthy %s", status["observedGeneration"], status["matchedNodes"],
			conditionIn(status, nfdv1alpha1.ConditionConflicted), conditionIn(status, nfdv1alpha1.ConditionHealthy))
		want := fmt.Sprintf("generation %v, %d nodes, conflicted %s, healthy %s", below(o, "metadata")["generation"], matched[name],
			truth[conflicted[name]], truth[!failing[name]])
		if got != want {
			c.w.violate("the status of NodeFeatureRule %s is at the end %s, want %s: %v", name, got, want, status["conditions"])
		}
	}
}

// truth is the status of a condition.
var truth = map[bool]string{true: "True", false: "False"}

// matching returns the nodes on which something matches, according to a plain evaluation of what the API server stores. It has the matchers of
// a rule, and is in an object.
func (c *checker) matching(nodes []object, in object, matchers object) (out []string) {
	features := c.w.server.List("nodefeatures")
	rule := object{"metadata": below(in, "metadata"), "spec": object{"rules": []any{object{"name": "it", "matchFeatures": matchers["matchFeatures"]}}}}
	for _, o := range nodes {
		name := below(o, "metadata")["name"].(string)
		if f := byNode(name, features); len(f) > 0 {
			c.want.outcome(name, []object{rule}, f).Matched(func(string) { out = append(out, name) })
		}
	}
	slices.Sort(out)
	return out
}

// settledGroups checks that the status of each group has the nodes that an evaluation of what the API server stores gives.
func (c *checker) settledGroups(nodes []object) {
	for _, o := range c.w.server.List("nodefeaturegroups") {
		status, got := below(o, "status"), []string(nil)
		members, _ := status["nodes"].([]any)
		for _, m := range members {
			got = append(got, m.(object)["name"].(string))
		}
		want := c.matching(nodes, o, below(o, "spec")["featureGroupRules"].([]any)[0].(object))
		if !slices.Equal(got, want) || fmt.Sprint(status["count"], status["observedGeneration"]) != fmt.Sprint(len(want), below(o, "metadata")["generation"]) {
			c.w.violate("the status of NodeFeatureGroup %s is at the end %v, want the nodes %v", pathIn(o), status, want)
		}
	}
}

// settledRequests checks that the status of each request has the number of nodes that an evaluation of what the API server stores gives.
func (c *checker) settledRequests(nodes []object) {
	for _, o := range c.w.server.List("nodefeaturerequests") {
		status := below(o, "status")
		matching := len(c.matching(nodes, o, below(below(o, "spec"), "required")))
		got := fmt.Sprintf("generation %v, %v nodes, satisfiable %s", status["observedGeneration"], status["matchingNodes"], conditionIn(status, assayv1alpha1.ConditionSatisfiable))
		if want := fmt.Sprintf("generation %v, %d nodes, satisfiable %s", below(o, "metadata")["generation"], matching, truth[matching > 0]); got != want {
			c.w.violate("the status of NodeFeatureRequest %s is at the end %s, want %s", pathIn(o), got, want)
		}
	}
}

// conditionIn returns the status of a condition in the status of an object; empty: there is none.
func conditionIn(status object, kind string) string {
	list, _ := status["conditions"].([]any)
	i := slices.IndexFunc(list, func(c any) bool { return c.(object)["type"] == kind })
	if i < 0 {
		return ""
	}
	return fmt.Sprint(list[i].(object)["status"])
}

// TestAStatusThatIsNotRenewedIsFound: another client writes a status that no evaluation gives while no controller runs.
func TestAStatusThatIsNotRenewedIsFound(t *testing.T) {
	healthy := object{"conditions": []any{object{"type": nfdv1alpha1.ConditionHealthy, "status": "False"}, object{"type": nfdv1alpha1.ConditionConflicted, "status": "False"}}}
	for name, wrong := range map[string]struct {
		path   string
		status object
	}{
		"MatchedNodes":  {rulesPath + "/" + ruleName(0), object{"matchedNodes": 77}},
		"Healthy":       {rulesPath + "/" + ruleName(0), healthy},
		"Count":         {groupsPath + "/fast", object{"count": 77}},
		"Members":       {groupsPath + "/fast", object{"nodes": []any{object{"name": "stranger"}}}},
		"MatchingNodes": {fmt.Sprintf(requestsPath, lossy) + "/" + requestName, object{"matchingNodes": 77}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&tape{declares: true}, logr.Discard())
				defer w.end()
				w.requireFeatures()
				w.boot()
				w.drain(time.Minute)
				w.drain(time.Second)
				nodes := w.server.List("nodes")
				w.check.settledStatuses(nodes)
				if len(w.violations) > 0 {
					t.Fatalf("violations: %v", w.violations)
				}
				w.do("user", http.MethodPatch, wrong.path+"/status", object{"status": wrong.status})
				if w.check.settledStatuses(nodes); len(w.violations) == 0 {
					t.Error("a wrong status is not found")
				}
			})
		})
	}
}
