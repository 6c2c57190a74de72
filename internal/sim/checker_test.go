package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

// checker checks the controller's guarantees for each write of a Node.
type checker struct {
	w    *world
	want *reference
	ours map[string]map[string]given // by node: keys that the controller wrote, and no other client has changed since
	// contested is set, by node, if another client has changed keys of the controller, which it then leaves alone.
	contested map[string]bool
	lost      map[string]map[string]loss // by process and node: the last removal of a key
	// unwritten is, by process and node, when a write of the Node last failed: the process can have counted a removal that it did not carry out.
	unwritten map[string]time.Time
	whole     map[string]time.Time // by process and node: when it has surely seen last that the node lacks nothing
	had       map[string]bool      // by process and pod: it has surely seen that the node of the pod has what the pod requires
	evicted   map[string]eviction  // by process: the last taint that evicts pods
	// writes and causes are, by node, the number of writes of the controller and of their possible causes.
	writes, causes map[string]int
	boots          map[string]any // by node: the boot that was last ready
	turns          map[string]int // by node: number of changes that may take a write of their own: of its readiness, and taints that have waited
	everywhere     int            // number of causes that affect all nodes
	// sets is, by UID of a NodeFeatureSet, whether its content is what its name says.
	sets map[string]bool
}

// given is a key that the controller has written.
type given struct {
	value string
	rules int64  // minimum revision of the rules
	by    string // the process that wrote it
}

func newChecker(w *world) *checker {
	return &checker{
		w: w, want: newReference(w), ours: map[string]map[string]given{}, lost: map[string]map[string]loss{}, unwritten: map[string]time.Time{},
		contested: map[string]bool{}, evicted: map[string]eviction{}, whole: map[string]time.Time{}, had: map[string]bool{},
		writes: map[string]int{}, causes: map[string]int{}, turns: map[string]int{}, sets: map[string]bool{}, boots: map[string]any{},
	}
}

// record returns the keys that a Node's annotations list as the controller's.
func (c *checker) record(o object) map[string]bool {
	version := o["metadata"].(object)["resourceVersion"].(string)
	if c.w.records[version] == nil {
		c.w.records[version] = c.readRecord(o)
	}
	return c.w.records[version]
}

func (c *checker) readRecord(o object) map[string]bool {
	out := map[string]bool{}
	var r plan.Record
	present := c.w.keysOf(o)
	for kind, annotation := range map[keys.Kind]string{
		keys.Label: r.Labels(), keys.Annotation: r.Annotations(), keys.Resource: r.Resources(), keys.Condition: r.Conditions(),
	} {
		for _, k := range r.Parse(present[string(keys.Annotation)+" "+annotation]) {
			out[string(kind)+" "+k] = true
		}
	}
	for _, t := range plan.ParseTaints(present[string(keys.Annotation)+" "+r.Taints()]) {
		out[string(keys.Taint)+" "+t.Key+":"+string(t.Effect)] = true
	}
	return out
}

// bookkeeping reports whether a key is an annotation for the controller's record.
func bookkeeping(k string) bool {
	name, is := strings.CutPrefix(k, string(keys.Annotation)+" ")
	return is && (strings.HasPrefix(name, nfdv1alpha1.BookkeepingNamespace+"/") ||
		name == assayv1alpha1.FailedAnnotation || name == assayv1alpha1.NodeConditionsAnnotation || name == assayv1alpha1.FeaturesGenerationAnnotation)
}

// floor records what a process has seen, unless it can still act on an older state.
func (c *checker) floor(p *program) {
	if time.Now().Before(p.unsure) {
		return
	}
	for _, r := range p.client.Pending() {
		if text := r.String(); !strings.HasPrefix(text, "watch ") && !strings.Contains(text, " events ") && !strings.Contains(text, " leases ") {
			return
		}
	}
	if slices.ContainsFunc(p.queues.ready(), func(item [2]string) bool { return strings.HasPrefix(item[0], "rule-") }) {
		return // a rule that has arrived may not be compiled yet
	}
	floors := map[string]int64{}
	for _, w := range p.client.Watches() {
		resource, at := w.At()
		if w.Initial() {
			at = 0
		}
		if before, has := floors[resource]; !has || at < before {
			floors[resource] = at
		}
	}
	if c.w.sharing && !c.complete(p) {
		delete(floors, "nodefeatures")
	}
	for resource, at := range floors {
		p.floor[resource] = max(p.floor[resource], at)
	}
}

// change checks one change.
func (c *checker) change(change apiserver.Change) {
	c.count(change)
	if change.Resource.Name != "nodes" {
		return
	}
	name := change.Key
	if change.Type != apiserver.Modified {
		delete(c.ours, name)
		return
	}
	before, after := c.w.keysOf(change.Old), c.w.keysOf(change.New)
	recordBefore, recordAfter := c.record(change.Old), c.record(change.New)
	byUs := strings.HasPrefix(change.By, "controller")
	if c.ours[name] == nil {
		c.ours[name] = map[string]given{}
	}
	var lost []lostKey
	var corrected []lostKey // another client's values of keys of the controller
	for _, k := range slices.Sorted(maps.Keys(union(before, after))) {
		old, had := before[k]
		now, has := after[k]
		if old == now && had == has {
			continue
		}
		was, wasOurs := c.ours[name][k]
		delete(c.ours[name], k)
		if !byUs && wasOurs {
			c.contested[name] = true
		}
		if !byUs || bookkeeping(k) || k == startupKey {
			continue
		}
		if has {
			c.ours[name][k] = given{now, c.seen(change.By), change.By}
		}
		if k == lossKey && (has || recordBefore[k]) {
			c.loss(change, now, has)
			continue
		}
		if k == devicesKey {
			c.devices(change, now, has, had && recordBefore[k] && wasOurs)
			continue
		}
		// A new key can have the value of another NodeFeature if a list lacked the one that overrides it. No API server returns such a list.
		partial := !had && c.w.short[change.By+" nodefeatures"]
		if has && !partial && !c.justified(change, name, func(want map[string]string, _, _ []object) bool { v, wants := want[k]; return wants && same(k, v, now) }, false) {
			c.w.violate("%s: %s=%s is written and was not wanted lately", name, k, now)
		}
		switch {
		case !has && !recordBefore[k]:
			c.w.violate("%s: %s is removed, and the record did not hold it", name, k)
		case had && recordBefore[k] && c.taken(change, name, k, old, has):
			c.w.violate("%s: %s=%s is taken away without evidence", name, k, old)
		case has: // another value is not a loss
		case had && recordBefore[k] && wasOurs:
			lost = append(lost, lostKey{k, old, was})
		case had && recordBefore[k]:
			corrected = append(corrected, lostKey{key: k, value: old})
		}
	}
	c.budget(change, name, lost, corrected)
	if !byUs {
		return
	}
	c.gate(change)
	c.pace(change)
	for _, k := range slices.Sorted(maps.Keys(c.ours[name])) {
		if !recordAfter[k] {
			c.w.violate("%s: %s is ours, and the record does not hold it", name, k)
		}
	}
}

// same compares values; values of resources are quantities.
func same(_, a, b string) bool { return a == b }

// taken reports whether a key with its value was wanted in all states that the writer could have seen. A removed key must not have
// been wanted with any value: it would disappear briefly and come back. A state in which no rule gives the key does not explain it if one that
// has given it reads a source which the node's worker has not read since the node booted.
func (c *checker) taken(change apiserver.Change, node, k, value string, changed bool) bool {
	return !c.justified(change, node, func(want map[string]string, rules, features []object) bool {
		v, wants := want[k]
		return changed && wants && v != value || !wants && !c.depends(node, rules, k, c.unread(node, features))
	}, true)
}

// unread returns the sources that have found nothing yet for what the worker of a node has published, although the host has what they find.
func (c *checker) unread(node string, features []object) (out []string) {
	at := slices.IndexFunc(features, func(f object) bool {
		return below(f, "metadata")["namespace"] == namespace && below(f, "metadata")["name"] == node
	})
	if at < 0 || c.w.hosts[node] == nil {
		return nil
	}
	published := below(c.w.resolved(features[at]), "attributes")
	for source, feature := range map[string]string{"test": "test.attr", "id": "id.host", "system": "system.boot"} {
		if past := c.w.hosts[node].past[source]; len(below(published, feature)) == 0 && len(past) > 0 && past[len(past)-1] != "" {
			out = append(out, source)
		}
	}
	return out
}

// depends reports whether one of the rules reads one of the sources, and has given a node a key at some time.
func (c *checker) depends(node string, list []object, k string, sources []string) bool {
	if len(sources) == 0 {
		return false
	}
	return slices.ContainsFunc(list, func(o object) bool {
		rules, _ := below(o, "spec")["rules"].([]any)
		reads := slices.ContainsFunc(rules, func(r any) bool {
			terms, _ := r.(object)["matchFeatures"].([]any)
			return slices.ContainsFunc(terms, func(t any) bool {
				source, _, _ := strings.Cut(fmt.Sprint(t.(object)["feature"]), ".")
				return slices.Contains(sources, source)
			})
		})
		return reads && slices.ContainsFunc(c.featuresOf(node, 1), func(features []object) bool {
			_, gives := c.want.want(node, []object{o}, features)[k]
			return gives
		})
	})
}

// justified reports whether a state that the writer could have seen explains a change. For removals, a worker's features count for
// the grace period after their deletion.
func (c *checker) justified(change apiserver.Change, name string, explains func(want map[string]string, rules, features []object) bool, takes bool) bool {
	p := c.w.running(change.By)
	if p == nil {
		return true // it has crashed since
	}
	grace := settings.DefaultRemovalGracePeriod
	if !takes && time.Now().Before(p.unsure) {
		grace += patience // what it writes may have been due before its requests failed
	}
	return c.possible(name, p, p.floor["nodefeaturerules"], p.floor["nodefeatures"], grace, takes, explains)
}

// possible reports whether something is true of one of the states of a node that a process could have seen, with rules and NodeFeatures from
// the given revisions on. A worker's features count for the grace period after their deletion; if the change takes a key, they surely do.
func (c *checker) possible(name string, p *program, rules, published int64, grace time.Duration, takes bool, is func(want map[string]string, rules, features []object) bool) bool {
	last, features := c.last(name, p, grace, takes), c.featuresOf(name, max(published, 1))
	isOwn := func(f object) bool { return f["metadata"].(object)["name"] == name }
	versions := distinct(c.w.meant(max(rules, 1)))
	if !takes {
		versions = append(versions, steady(versions))
	}
	for _, ruleObjects := range versions {
		holds := func(features []object) bool {
			return is(c.want.want(name, ruleObjects, features), ruleObjects, features)
		}
		for _, of := range features {
			own := slices.ContainsFunc(of, isOwn)
			// The worker's features may be left out because a set is missing, or because they are of the previous node of this name.
			if (c.w.sharing || c.w.replaced[name]) && !takes && holds(slices.DeleteFunc(slices.Clone(of), isOwn)) {
				return true
			}
			for _, f := range last {
				if !own && holds(append(slices.Clip(of), f)) {
					return true
				}
			}
			if (own || len(last) == 0 || !takes) && holds(of) {
				return true
			}
		}
	}
	return false
}

// featuresOf returns the versions of a node's NodeFeatures from a revision on.
func (c *checker) featuresOf(name string, from int64) (out [][]object) {
	for _, all := range c.w.server.Versions("nodefeatures", from) {
		out = append(out, byNode(name, all))
	}
	return distinct(out)
}

// byNode returns the NodeFeatures of a node.
func byNode(node string, all []object) (out []object) {
	for _, f := range all {
		if nodeOf(f) == node {
			out = append(out, f)
		}
	}
	return out
}

// distinct removes versions that differ from the previous one only in metadata or status.
func distinct(versions [][]object) [][]object {
	return slices.CompactFunc(versions, func(a, b []object) bool {
		return slices.EqualFunc(a, b, func(a, b object) bool { return id(a) == id(b) })
	})
}

// steady returns the objects that are in all versions: a process compiles rules one after another, so the others may be missing.
func steady(versions [][]object) (out []object) {
	for _, o := range versions[0] {
		if !slices.ContainsFunc(versions[1:], func(v []object) bool {
			return !slices.ContainsFunc(v, func(other object) bool { return id(other) == id(o) })
		}) {
			out = append(out, o)
		}
	}
	return out
}

// last returns the states of the NodeFeature of a worker, deleted within the grace period, that a process may have seen last: a write
// on its way may follow from one of them although the worker has published again. If a watch has delivered the deletion, this is the state
// before it. If a list lacked the object, it can be any earlier one. The grace period can begin as late as the process learns of the deletion;
// a change that takes a key counts it from the deletion.
func (c *checker) last(name string, p *program, grace time.Duration, takes bool) (last []object) {
	var seen []object
	partial := c.w.sharing || c.w.lacks(p.name) // its cache may lack the object, or a set that the object names
	for _, change := range c.w.server.Since(0) {
		if change.Resource.Name != "nodefeatures" || change.Key != namespace+"/"+name || change.Old == nil {
			continue
		}
		if seen = append(seen, change.Old); change.Type == apiserver.Deleted {
			told, began := p.client.Told(change.Revision), change.Time
			if !partial && !told.IsZero() {
				seen = seen[len(seen)-1:]
			}
			if !takes && told.After(began) {
				began = told
			}
			if time.Since(began) < grace {
				last = append(last, seen...)
			}
			seen = nil
		}
		if change.Revision <= p.began {
			seen = nil // it was replaced before the process started
		}
	}
	return last
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// settled checks that the Nodes match the rules.
func (c *checker) settled() {
	nodes := c.w.server.List("nodes")
	for _, o := range nodes {
		name := o["metadata"].(object)["name"].(string)
		want, have := c.wanted(name, c.w.server.Revision()), map[string]string{}
		if devices := c.devicesOf(name); devices != "" {
			want = maps.Clone(want)
			want[devicesKey] = devices
		}
		record, present := c.record(o), c.w.keysOf(o)
		for k := range record {
			if v, has := present[k]; has && k != lossKey {
				have[k] = v
			}
		}
		c.settledLoss(o, nodes)
		if _, closed := present[startupKey]; closed {
			c.w.violate("%s has the start-up taint at the end", name)
		}
		if !c.bears(o) && c.full(nodes, name) {
			want = maps.Clone(want)
			maps.DeleteFunc(want, func(k, _ string) bool { return evicts(k) })
		}
		if !maps.Equal(want, have) {
			c.w.violate("%s has %v at the end, and the rules want %v", name, have, want)
		}
	}
	c.settledStatuses(nodes)
}

// The check expected the keys of one version of all rules. A node became ready when a deleted rule had been compiled, and one that was created
// just before had not (found by seed 44457).
func TestRulesThatChangedMayBeMissing(t *testing.T) {
	rule := func(uid string, generation int64) object {
		return object{"metadata": object{"uid": uid, "generation": generation}}
	}
	versions := [][]object{
		{rule("deleted", 1), rule("edited", 1), rule("same", 1)},
		{rule("created", 1), rule("deleted", 1), rule("edited", 1), rule("same", 1)},
		{rule("created", 1), rule("edited", 2), rule("same", 1)},
	}
	if got := steady(versions); len(got) != 1 || id(got[0]) != id(rule("same", 1)) {
		t.Errorf("rules in all versions: %v", got)
	}
}
