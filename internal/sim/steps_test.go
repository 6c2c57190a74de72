package sim

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/assay-project/assay/internal/sim/apiserver"
)

// Weights of possible steps.
const (
	likely   = 40 // a response or an event arrives
	usual    = 8
	seldom   = 2
	steps    = 25
	maxChaos = 2 // rounds of faults, each starting from a settled cluster
)

// quiet is longer than the grace period and the hold time after it.
const quiet = 20 * time.Minute

// play runs the whole schedule.
func (w *world) play() {
	for _, node := range w.names()[:w.employed] {
		w.hire(node)
	}
	for range w.replicas {
		w.boot()
	}
	if w.extends {
		w.bootExtender()
	}
	w.wait()
	if w.n(3) > 0 { // otherwise it starts during the synchronization
		w.drain(time.Minute)
	}
	for range 1 + w.n(maxChaos) {
		w.faults = w.n(4) > 0
		for range steps {
			w.step()
			if len(w.violations) > 0 {
				return
			}
		}
		switch w.n(4) {
		case 1, 2:
			w.drain(time.Minute)
		case 3:
			w.drain(quiet)
		}
	}
	w.settle()
}

// settle ends all faults, and checks that the cluster reaches the desired state and keeps it.
func (w *world) settle() {
	w.tell("all faults end")
	for w.working() < w.replicas {
		w.boot()
	}
	for i := range w.nodes {
		switch node := nodeName(i); {
		case w.employs(node):
			w.hire(node)
		case w.facts[node] != nil:
			w.publish(node)
		}
	}
	if w.devices {
		w.settleDevices()
	}
	if w.redefines {
		w.settleDefinitions()
	}
	if w.holder != "" && w.running(w.holder) == nil {
		w.expireLease()
	}
	w.drain(5 * time.Minute)
	w.check.owned() // a NodeFeature of the previous node of this name is kept, before the garbage collector deletes it
	w.server.CollectGarbage()
	w.drain(time.Minute)
	for _, p := range w.all() {
		for _, watch := range p.client.Watches() {
			if w.short[p.name+" "+watch.String()] {
				watch.Expire() // objects that a list lacked are seen with the next list
			}
		}
	}
	w.calm = true
	w.converge()
	if len(w.violations) > 0 {
		return
	}
	w.check.settled()
	if w.losing {
		w.tell("all nodes have the feature again")
		for _, node := range w.names() {
			w.setFeature(node, true)
		}
		w.converge()
		w.check.settled()
	}
	w.check.upToDate()
	if w.extender != nil {
		w.check.agrees()
	}
	var answered []int
	for _, p := range w.publishers() {
		answered = append(answered, p.answered)
	}
	if len(w.violations) == 0 && !w.drain(time.Hour) && len(w.violations) == 0 {
		w.violate("Nodes are written although nothing changes")
	}
	for i, p := range w.publishers() {
		if p.answered != answered[i] {
			w.violate("%s sends requests although nothing changes", p.name)
		}
	}
	if w.check.frugal(); len(w.violations) == 0 {
		w.join(func() {})
	}
}

// converge gives the controllers the time that they may take: the grace period, the hold time and the delays of retries; an hour for contested
// keys, which are left alone for it; then taints that evict pods come at their pace. An item of a queue that is due is released at the end of
// a wait.
func (w *world) converge() {
	w.drain(2 * quiet)
	if len(w.check.contested) > 0 {
		w.drain(35 * time.Minute)
	}
	for range 10 {
		w.drain(evictions.Every)
	}
}

// step executes one of the possible steps.
func (w *world) step() {
	w.jitter = int64(w.n(1 << 16))
	things := append(w.environment(), w.life()...)
	for _, p := range w.all() {
		things = append(things, w.network(p)...)
	}
	w.pick(things)
	w.wait()
}

// network returns possible events of requests and watches.
func (w *world) network(p *program) []weighted {
	pending, watches := p.requests(), p.client.Watches()
	var out []weighted
	if len(pending) > 0 {
		out = append(out, weighted{likely, func() {
			r := one(w.tape, pending...)
			text := r.String()
			w.tell("%s: answer %s: %d", p.name, text, w.answer(p, r))
		}})
		if written := nodesOf(pending); len(written) > 0 {
			out = append(out, weighted{usual, func() { w.interfere(one(w.tape, written...)) }})
		}
		if w.faults {
			out = append(out, weighted{usual, func() { w.hurt(p, one(w.tape, pending...)) }})
		}
	}
	var ready []*apiserver.Watch
	for _, watch := range watches {
		if watch.Waits() {
			ready = append(ready, watch)
		}
	}
	if len(ready) > 0 {
		out = append(out, weighted{likely, func() {
			watch := one(w.tape, ready...)
			all := w.n(4) == 3
			for watch.Waits() {
				w.tell("%s: deliver to %s: %s", p.name, watch, watch.Next())
				w.deliver(watch)
				if !all && !watch.Initial() {
					break
				}
			}
		}})
	}
	if items := p.queues.ready(); len(items) > 0 {
		out = append(out, weighted{likely, func() {
			item := one(w.tape, items...)
			w.tell("%s: %s works on %s", p.name, item[0], item[1])
			w.release(p, item)
		}})
	}
	initial := slices.DeleteFunc(slices.Clone(ready), func(w *apiserver.Watch) bool { return !w.Initial() })
	if w.faults && len(initial) > 0 {
		out = append(out, weighted{usual, func() { w.skip(p, one(w.tape, initial...)) }})
	}
	if w.faults && len(watches) > 0 {
		out = append(out, weighted{seldom, func() { w.cut(one(w.tape, watches...)) }})
	}
	return out
}

// nodesOf returns the Nodes that requests write.
func nodesOf(pending []*apiserver.Request) (names []string) {
	for _, r := range pending {
		if resource, name := r.Target(); r.Writes() && !r.Executed() && resource == "nodes" {
			names = append(names, name)
		}
	}
	return names
}

// hurt makes a request fail in some way.
func (w *world) hurt(p *program, r *apiserver.Request) {
	p.unsure = time.Now().Add(patience)
	w.check.failed(p, r)
	text := r.String()
	switch w.n(6) {
	case 0:
		w.tell("carry out %s; the answer is on the way", text)
		r.Execute()
	case 1:
		w.tell("carry out %s; the answer is lost", text)
		r.Execute()
		r.Lose()
	case 2:
		w.tell("lose %s", text)
		r.Lose()
	case 3:
		w.tell("fail %s: 500", text)
		r.Fail(http.StatusInternalServerError, 0)
	case 4:
		w.tell("fail %s: 429", text)
		r.Fail(http.StatusTooManyRequests, 1)
	case 5:
		if !r.Writes() {
			w.tell("fail %s: 504", text)
			r.Fail(http.StatusGatewayTimeout, 0)
			return
		}
		w.tell("fail %s: 409", text)
		r.Fail(http.StatusConflict, 0)
	}
}

// patience is how long a program can act on the previous state after a failed request.
const patience = 20 * time.Minute

// cut ends a watch in some way.
func (w *world) cut(watch *apiserver.Watch) {
	switch w.n(4) {
	case 0:
		if watch.Bookmark() {
			w.tell("bookmark to %s", watch)
		}
	case 1:
		w.tell("watch of %s ends", watch)
		watch.End(io.EOF)
	case 2:
		w.tell("watch of %s is cut", watch)
		watch.End(errors.New("connection reset by peer"))
	case 3:
		w.tell("watch of %s expires", watch)
		w.server.Compact()
		watch.Expire()
	}
}

// environment returns possible changes by other clients.
func (w *world) environment() []weighted {
	node := func() string { return nodeName(w.n(w.nodes)) }
	rule := func() int { return w.n(3) }
	var more []weighted
	if w.sharing {
		more = append(more, weighted{seldom, w.deleteSet})
	}
	if w.losing {
		more = append(more, []weighted{
			{usual, func() { w.bindPod(node()) }},
			{seldom, w.deletePod},
			{1, w.editRequest},
			{usual, func() { w.setFeature(node(), w.n(2) == 0) }},
			{usual, func() { w.drain(lossGrace) }},
		}...)
	}
	if w.devices {
		more = append(more, []weighted{
			{usual, func() { w.publishDevices(node()) }},
			{usual, func() { w.withdrawDevices("kubelet", node()) }},
			{seldom, func() { w.loseSlice(node()) }},
			{seldom, func() { w.taintDevices(node()) }},
		}...)
	}
	if w.extender != nil {
		more = append(more, weighted{usual, w.schedule})
	}
	if w.redefines {
		more = append(more, w.redefinitions()...)
	}
	return append(more, []weighted{
		{usual, func() {
			d := one(w.tape, 10*time.Millisecond, time.Second, 5*time.Second, time.Minute, 6*time.Minute)
			w.tell("time passes, up to %s", d)
			w.pass(d)
		}},
		{usual, func() { w.change(node()) }},
		{seldom, func() { w.heartbeat(node()) }},
		{seldom, func() { w.foreign(node()) }},
		{1, func() { w.foreignTaint(node()) }},
		{1, func() { w.foreignCondition(node()) }},
		{seldom, func() { w.editRule(rule()) }},
		{1, func() { w.deleteRule(rule()) }},
		{1, func() { w.deleteFeature(node()) }},
		{1, func() { w.replaceNode(node()) }},
		{1, func() { w.tamper(node()) }},
		{seldom, func() { w.vendor(node()) }},
		{1, func() { w.reboot(node()) }},
		{1, func() { w.tell("garbage collection: %d", w.server.CollectGarbage()) }},
	}...)
}

// life returns possible starts and crashes of the program.
func (w *world) life() (out []weighted) {
	if w.faults && len(w.workers) > 0 {
		out = append(out, weighted{1, func() {
			node := one(w.tape, slices.Sorted(maps.Keys(w.workers))...)
			w.dismiss(node)
			w.hire(node)
		}})
	}
	if w.faults && w.extender != nil {
		out = append(out, weighted{1, func() { w.endExtender(); w.bootExtender() }})
	}
	if w.holder != "" && w.running(w.holder) == nil {
		out = append(out, weighted{usual, w.expireLease})
	}
	switch {
	case w.working() < w.replicas:
		out = append(out, weighted{likely / 2, w.boot})
	case w.faults:
		out = append(out, []weighted{
			{1, func() { w.crash(one(w.tape, w.programs...)) }},
			{1, func() { w.stop(one(w.tape, w.programs...)) }},
			{1, func() { w.rollOut(one(w.tape, w.programs...), nodeName(w.n(w.nodes))) }},
			{1, func() { w.takeOver(one(w.tape, w.programs...)) }},
			{1, func() { w.relist(one(w.tape, w.programs...)) }},
			{1, func() { w.editOneOfTwo(one(w.tape, w.programs...)) }},
		}...)
	}
	return out
}
