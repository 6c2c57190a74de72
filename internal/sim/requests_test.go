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
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/settings"
)

// TestATenantThatLoopsWritesEachNodeAtMostTwelveTimesAnHour: each request that becomes a label costs a write of every node that matches, and
// another one when it goes. At most six requests of a namespace begin within an hour.
func TestATenantThatLoopsWritesEachNodeAtMostTwelveTimesAnHour(t *testing.T) {
	path := fmt.Sprintf(requestsPath, lossy)
	create := func(w *world, name string, value int) {
		w.do("tenant", http.MethodPost, path, object{"metadata": object{"name": name}, "spec": object{"required": required(fmt.Sprint(value))}})
	}
	for name, loop := range map[string]func(w *world, i int){
		"CreateAndDelete": func(w *world, i int) {
			if i%2 == 0 {
				create(w, "r", 0)
			} else {
				w.do("tenant", http.MethodDelete, path+"/r", nil)
			}
		},
		"NewNames": func(w *world, i int) {
			if create(w, fmt.Sprint("r", i), 0); i > 0 {
				w.do("tenant", http.MethodDelete, path+fmt.Sprint("/r", i-1), nil)
			}
		},
		"Edit": func(w *world, i int) {
			if i == 0 {
				create(w, "r", 0)
			} else {
				w.do("tenant", http.MethodPatch, path+"/r", object{"spec": object{"required": required(fmt.Sprint(i % 2))}})
			}
		},
		"NeverAndAuto": func(w *world, i int) {
			if i == 0 {
				create(w, "r", 0)
			} else {
				w.do("tenant", http.MethodPatch, path+"/r", object{"spec": object{"materialize": []any{"Auto", "Never"}[i%2]}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, stop := withRequests(t)
				defer stop()
				from, start, waited := w.server.Revision(), time.Now(), false
				for i := 0; time.Since(start) < time.Hour; i++ {
					loop(w, i)
					w.runs(10 * time.Second)
					waited = waited || slices.ContainsFunc(w.server.List("nodefeaturerequests"), func(o object) bool { return reason(o) == compile.ReasonTooOften })
				}
				writes := 0
				for _, c := range w.server.Since(from) {
					if c.Resource.Name == "nodes" && c.Key == nodeName(0) {
						writes++
					}
				}
				if writes == 0 || writes > 12 {
					t.Errorf("the node was written %d times", writes)
				}
				if !waited {
					t.Error("no request waited with the reason TooOften")
				}
				t.Logf("%d writes", writes)
				create(w, "last", 0)
				if w.runs(time.Hour); !w.labeled(lossy, "last") {
					t.Errorf("an hour later the next request is not a label: %s", reason(w.server.Get("nodefeaturerequests", lossy, "last")))
				}
			})
		})
	}
}

// TestALoopOfOneTenantDoesNotDelayAnother: the limit is that of a namespace.
func TestALoopOfOneTenantDoesNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := withRequests(t)
		defer stop()
		for i := range 8 {
			path := fmt.Sprintf(requestsPath, lossy)
			w.do("tenant", http.MethodPost, path, object{"metadata": object{"name": "r"}, "spec": object{"required": required("0")}})
			w.runs(10 * time.Second)
			if has := w.labeled(lossy, "r"); has != (i < 6) {
				t.Errorf("request %d is a label: %t", i, has)
			}
			if i < 7 {
				w.do("tenant", http.MethodDelete, path+"/r", nil)
				w.runs(10 * time.Second)
			}
		}
		w.do("other", http.MethodPost, fmt.Sprintf(requestsPath, silent), object{"metadata": object{"name": "r"}, "spec": object{"required": required("0")}})
		if w.runs(10 * time.Second); !w.labeled(silent, "r") {
			t.Errorf("the request of another namespace is not a label: %s", reason(w.server.Get("nodefeaturerequests", silent, "r")))
		}
	})
}

// withRequests returns a world without faults, in which one node has the value 0 and a controller materializes requests.
func withRequests(t *testing.T) (w *world, stop func()) {
	w = &world{tape: &tape{}, server: apiserver.New(apiserver.Resources()...), start: time.Now(), log: logr.Discard(), attributes: 1,
		facts: map[string]map[string]string{}, boots: map[string]int{}, silent: map[string]bool{}, hosts: map[string]*host{}}
	w.define()
	for _, ns := range []string{lossy, silent} {
		w.do("user", http.MethodPost, namespacesPath, object{"metadata": object{"name": ns}})
	}
	w.addNode(nodeName(0))
	w.facts[nodeName(0)]["a0"] = "0"
	w.publish(nodeName(0))
	c := config(false)
	c.FeatureGates[settings.GateScheduling] = true
	c.MaterializedRequests = settings.Default().MaterializedRequests
	p, err := startController(w.server, "controller", c, false, w.log)
	if err != nil {
		t.Fatal(err)
	}
	w.programs = append(w.programs, p)
	w.runs(time.Minute)
	return w, func() {
		if p.crash(); len(w.violations) > 0 {
			t.Error(w.violations)
		}
	}
}

// runs lets the programs run for some time, without faults.
func (w *world) runs(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		synctest.Wait()
		if any := w.programs[0].flow(); any {
			continue
		}
		select { // of a request that was answered meanwhile
		case <-w.server.Arrived():
		default:
		}
		select {
		case <-time.After(min(time.Until(end), syncPeriod)):
		case <-w.server.Arrived():
		}
	}
}

// labeled reports whether the node has the label of a request.
func (w *world) labeled(namespace, request string) bool {
	labels := below(below(w.server.Get("nodes", "", nodeName(0)), "metadata"), "labels")
	return labels["features.assay.dev/"+namespace+"."+request] == "true"
}

// reason returns why a request is or is not a label.
func reason(request object) string {
	list, _ := below(request, "status")["conditions"].([]any)
	for _, c := range list {
		if c := c.(object); c["type"] == assayv1alpha1.ConditionMaterialized {
			return fmt.Sprint(c["reason"])
		}
	}
	return ""
}
