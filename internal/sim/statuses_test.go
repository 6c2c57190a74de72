package sim

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// settledRules checks that the status of each rule is what an evaluation of what the API server stores says.
func (c *checker) settledRules(nodes []object) {
	revision := c.w.server.Revision()
	list, features := c.w.meantAt(revision), c.w.server.At("nodefeatures", revision)
	matched, conflicted := map[string]int{}, map[string]bool{}
	for _, o := range nodes {
		name := below(o, "metadata")["name"].(string)
		outcome := c.want.outcome(name, list, byNode(name, features))
		outcome.Matched(func(object string) { matched[object]++ })
		for _, x := range outcome.Conflicts() {
			conflicted[x.Kept.Object], conflicted[x.Lost.Object] = true, true
		}
		if c.devicesOf(name) > 0 {
			matched[devicesRule]++
		}
	}
	for _, o := range c.w.server.List("nodefeaturerules") {
		name, status := below(o, "metadata")["name"].(string), below(o, "status")
		got := fmt.Sprintf("generation %v, %v nodes, conflicted %s", status["observedGeneration"], status["matchedNodes"], conditionIn(status, nfdv1alpha1.ConditionConflicted))
		want := fmt.Sprintf("generation %v, %d nodes, conflicted %s", below(o, "metadata")["generation"], matched[name], map[bool]string{true: "True", false: "False"}[conflicted[name]])
		if got != want {
			c.w.violate("the status of NodeFeatureRule %s is at the end %s, want %s", name, got, want)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.boot()
		w.drain(time.Minute)
		w.drain(time.Second)
		nodes := w.server.List("nodes")
		w.check.settledRules(nodes)
		if len(w.violations) > 0 {
			t.Fatalf("violations: %v", w.violations)
		}
		rule := below(w.server.List("nodefeaturerules")[0], "metadata")["name"].(string)
		w.do("user", http.MethodPatch, rulesPath+"/"+rule+"/status", object{"status": object{"matchedNodes": 77}})
		if w.check.settledRules(nodes); len(w.violations) == 0 {
			t.Error("a wrong number of nodes is not found")
		}
	})
}
