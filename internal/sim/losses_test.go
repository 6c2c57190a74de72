package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/settings"
)

// Namespaces whose pods require a feature by the NodeFeatureRequest requestName. Only the pods of lossy may have their node tainted.
const (
	lossy   = "lossy"
	silent  = "silent"  // onLoss is Event
	outside = "outside" // onLoss is Taint, and the namespace does not allow it

	requestName    = "link"
	namespacesPath = "/api/v1/namespaces"
	requestsPath   = "/apis/assay.dev/v1alpha1/namespaces/%s/nodefeaturerequests"
)

// lossTaint is the taint of nodes that have lost a feature which pods on them require.
var lossTaint = corev1.Taint{Key: "example.com/features-lost", Effect: corev1.TaintEffectNoExecute}

// lossKey is the key of that taint among the keys of a Node.
var lossKey = string(keys.Taint) + " " + lossTaint.Key + ":" + string(lossTaint.Effect)

// lossGrace is how long nodes must lack the feature.
const lossGrace = 2 * time.Minute

// maxPods is the maximum number of pods at a time.
const maxPods = 8

// requireFeatures creates the namespaces and the requests.
func (w *world) requireFeatures() {
	for _, ns := range []string{lossy, silent, outside} {
		labels, onLoss := object{}, string(assayv1alpha1.LossTaint)
		if ns != outside {
			labels[assayv1alpha1.OnLossLabel] = assayv1alpha1.OnLossLabelEnabled
		}
		if ns == silent {
			onLoss = "Event"
		}
		w.do("user", http.MethodPost, namespacesPath, object{"metadata": object{"name": ns, "labels": labels}})
		w.do("user", http.MethodPost, fmt.Sprintf(requestsPath, ns), object{
			"metadata": object{"name": requestName},
			"spec":     object{"onLoss": onLoss, "grace": lossGrace.String(), "required": required("1", "2")},
		})
	}
}

// required is what pods require: one of the values.
func required(values ...any) object {
	return object{"matchFeatures": []any{object{"feature": "test.attr", "matchExpressions": object{"a0": object{"op": "In", "value": values}}}}}
}

// editRequest changes what the pods of lossy require, or whether they have their node tainted.
func (w *world) editRequest() {
	spec := object{"onLoss": string(one(w.tape, assayv1alpha1.LossTaint, assayv1alpha1.LossTaint, assayv1alpha1.LossEvent)), "required": required("1", "2")}
	if w.n(2) == 1 {
		spec["required"] = required("2")
	}
	w.tell("user writes request %s: %v", requestName, spec)
	w.do("user", http.MethodPatch, fmt.Sprintf(requestsPath, lossy)+"/"+requestName, object{"spec": spec})
}

// taints returns what the pods of lossy require if they have their node tainted, according to one version of the requests. An edited request
// does not: without a hash, no one knows what the pods required when they were created.
func taints(requests []object) (values []any, taints bool) {
	for _, o := range requests {
		m, spec := below(o, "metadata"), below(o, "spec")
		if m["namespace"] == lossy && m["generation"] == int64(1) && spec["onLoss"] == string(assayv1alpha1.LossTaint) {
			term := below(spec, "required")["matchFeatures"].([]any)[0].(object)
			values, _ := below(below(term, "matchExpressions"), "a0")["value"].([]any)
			return values, true
		}
	}
	return nil, false
}

// loses reports whether the pods of lossy have a node with a NodeFeature tainted, according to one version of the requests.
func (w *world) loses(requests []object, feature object) bool {
	values, taints := taints(requests)
	return taints && w.lacking(feature, values...)
}

// bindPod creates a pod that requires the feature on a node.
func (w *world) bindPod(node string) {
	if w.server.Get("nodes", "", node) == nil || len(w.server.List("pods")) >= maxPods {
		return
	}
	w.pods++
	ns, name := one(w.tape, lossy, lossy, lossy, silent, outside), fmt.Sprintf("pod-%d", w.pods)
	w.tell("pod %s/%s is bound to %s", ns, name, node)
	w.do("scheduler", http.MethodPost, namespacesPath+"/"+ns+"/pods", object{
		"metadata": object{"name": name, "labels": object{assayv1alpha1.FeatureRequestLabel: requestName}},
		"spec":     object{"nodeName": node, "containers": []any{object{"name": "c", "image": "none"}}},
	})
}

func pathOf(pod object) string {
	m := below(pod, "metadata")
	return fmt.Sprintf("%s/%s/pods/%s", namespacesPath, m["namespace"], m["name"])
}

// deletePod deletes a pod, or ends it.
func (w *world) deletePod() {
	list := w.server.List("pods")
	if len(list) == 0 {
		return
	}
	pod := one(w.tape, list...)
	if w.n(2) == 1 {
		w.tell("%s ends", pathOf(pod))
		w.do("kubelet", http.MethodPatch, pathOf(pod)+"/status", object{"status": object{"phase": "Succeeded"}})
		return
	}
	w.tell("%s is deleted", pathOf(pod))
	w.do("user", http.MethodDelete, pathOf(pod), nil)
}

// setFeature lets a node lose the feature, or have it again.
func (w *world) setFeature(node string, has bool) {
	if w.facts[node] == nil {
		return
	}
	w.facts[node]["a0"] = map[bool]string{false: "0", true: "1"}[has]
	w.tell("host %s: a0 is %s", node, w.facts[node]["a0"])
	w.examine(node)
}

// requires reports whether one of the pods may have a node tainted.
func requires(pods []object, node string) bool {
	return slices.ContainsFunc(pods, func(p object) bool {
		return below(p, "metadata")["namespace"] == lossy && below(p, "spec")["nodeName"] == node && below(p, "status")["phase"] != "Succeeded"
	})
}

// lacking reports whether a NodeFeature has none of the values that pods require.
func (w *world) lacking(feature object, values ...any) bool {
	return !slices.Contains(values, below(below(below(w.resolved(feature), "attributes"), "test.attr"), "elements")["a0"])
}

// idleness is since when a process has known all there is, up to a revision.
type idleness struct {
	revision int64
	since    time.Time
}

// lookPatience is longer than a controller waits until it checks the pods of nodes that have changed.
const lookPatience = 5 * time.Second

// look records what a process knows about losses, if it surely knows all there is.
func (c *checker) look(p *program) {
	if !c.w.losing || !c.knows(p, "nodes", "nodefeatures", "pods", "namespaces", "nodefeaturerequests") {
		return
	}
	p.looked = c.w.server.Revision()
	pods, requests := c.w.server.List("pods"), c.w.server.List("nodefeaturerequests")
	for _, node := range c.w.names() {
		own := c.w.server.Get("nodefeatures", namespace, node)
		if !requires(pods, node) || own != nil && !c.w.loses(requests, own) {
			c.whole[p.name+" "+node] = time.Now()
		}
		values, known := taints(requests)
		for _, pod := range pods {
			if known && own != nil && requires([]object{pod}, node) && !c.w.lacking(own, values...) {
				c.had[p.name+" "+pathOf(pod)] = true
			}
		}
	}
}

// knows reports whether a process surely knows all there is of these resources, and has known it for a while.
func (c *checker) knows(p *program, resources ...string) bool {
	now := c.w.server.Revision()
	watched := map[string]bool{}
	idle := !time.Now().Before(p.unsure) && (!c.w.sharing || c.complete(p)) && len(p.queues.ready()) == 0
	for _, watch := range p.client.Watches() {
		resource, at := watch.At()
		watched[resource] = true
		idle = idle && at == now && !watch.Initial() && !c.w.short[p.name+" "+watch.String()]
	}
	for _, r := range p.client.Pending() {
		idle = idle && (strings.Contains(r.String(), " leases ") || strings.Contains(r.String(), " events "))
	}
	for _, resource := range resources {
		idle = idle && watched[resource]
	}
	switch {
	case !idle:
		p.idle = idleness{}
	case p.idle.revision != now:
		p.idle = idleness{now, time.Now()}
	}
	return idle && time.Since(p.idle.since) >= lookPatience
}

// loss checks a change of the taint of lost features.
func (c *checker) loss(change apiserver.Change, value string, added bool) {
	name, p := change.Key, c.w.running(change.By)
	c.turns[name] += 2
	if p == nil {
		return // it has crashed since
	}
	if want := requirements.TaintValue(lossy, requestName); added && value != want {
		c.w.violate("%s has the taint of lost features with the value %s, and only that of %s may be there", name, value, want)
	}
	whole := c.whole[p.name+" "+name]
	if whole.Before(p.start) {
		whole = p.start
	}
	if added && time.Since(whole) < lossGrace {
		c.w.violate("%s has the taint of lost features %s after it lacked nothing or %s started, and the grace is %s", name, time.Since(whole), p.name, lossGrace)
	}
	if c.w.lacks(p.name) {
		return // pods, namespaces or requests
	}
	if !c.knew(name, p, added) {
		c.w.violate("%s: the taint of lost features is changed (now %t) without evidence", name, added)
	}
}

// knew reports whether a process could know that a node lacks something that its pods require, or that it lacks nothing.
func (c *checker) knew(name string, p *program, lost bool) bool {
	from := max(p.looked, 1)
	running := c.w.server.Versions("pods", from)
	switch some := slices.ContainsFunc(running, func(pods []object) bool { return requires(pods, name) == lost }); {
	case lost && !some:
		return false
	case !lost && some:
		return true
	}
	asked := c.w.server.Versions("nodefeaturerequests", from)
	if !lost && slices.ContainsFunc(asked, func(requests []object) bool { _, taints := taints(requests); return !taints }) {
		return true
	}
	features := c.last(name, p, settings.DefaultRemovalGracePeriod+patience, true)
	for _, all := range c.w.server.Versions("nodefeatures", from) {
		for _, f := range all {
			if m := below(f, "metadata"); m["namespace"] == namespace && m["name"] == name {
				features = append(features, f)
			}
		}
	}
	return slices.ContainsFunc(asked, func(requests []object) bool {
		return slices.ContainsFunc(features, func(f object) bool { return c.w.loses(requests, f) == lost })
	})
}

// settledLoss checks the taint of a Node at the end.
func (c *checker) settledLoss(o object, nodes []object) {
	name := below(o, "metadata")["name"].(string)
	own := c.w.server.Get("nodefeatures", namespace, name)
	_, tainted := c.w.keysOf(o)[lossKey]
	lost := c.w.losing && requires(c.w.server.List("pods"), name) && own != nil && c.w.loses(c.w.server.List("nodefeaturerequests"), own)
	switch {
	case tainted && !lost:
		c.w.violate("%s has the taint of lost features at the end, and no pod on it requires what it lacks", name)
	case lost && !tainted && c.sawWhole(name) && (c.bears(o) || !c.full(nodes, name)):
		c.w.violate("%s does not have the taint of lost features at the end, and pods on it require what it lacks", name)
	}
}

// sawWhole reports whether a process that runs has seen that the node has what one of its pods requires. Names of pods are not used again.
func (c *checker) sawWhole(node string) bool {
	return slices.ContainsFunc(c.w.server.List("pods"), func(pod object) bool {
		return requires([]object{pod}, node) && slices.ContainsFunc(c.w.programs, func(p *program) bool { return c.had[p.name+" "+pathOf(pod)] })
	})
}
