package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/assay-project/assay/internal/sim/apiserver"
)

// object is an object of the API as decoded JSON.
type object = map[string]any

// world is one run: a cluster, its programs, and the history.
type world struct {
	*tape
	server   *apiserver.Server
	programs []*program         // running programs
	workers  map[string]*worker // running publishers, by node
	hosts    map[string]*host
	employed int // number of nodes with a publisher
	hired    int // number of publishers started so far
	replicas int
	started  int    // number of programs started so far
	leader   string // process that last wrote a Node
	deposed  map[string]bool
	holder   string // process that holds the lease
	omitted  string // resource and name of what the first list of a process lacks
	start    time.Time
	log      logr.Logger
	faults   bool
	jitter   int64           // what the jitter of clients begins with
	drawn    *rand.Rand      // what it continues with if no client has drawn
	seeded   moment          // when that was checked
	calm     bool            // no further faults
	short    map[string]bool // by program and watch: whether an initial list lacked an object

	sharing   bool              // publishers publish facts as NodeFeatureSets
	contents  map[string]object // by NodeFeatureSet: its features
	pools     map[string]int64  // by node: the generation of the pool that its driver published last
	losing    bool              // pods require features, and nodes that lose them are tainted
	extender  *scheduling       // nil: this schedule has none
	extenders int               // number of extenders started so far
	pods      int               // number of pods created so far

	nodes, attributes int
	facts             map[string]map[string]string // by node and attribute: the value on the host
	versions          map[string]int               // by rule: number of edits
	boots             map[string]int               // by node: number of boots
	silent            map[string]bool              // by node: its NodeFeature has no features if no publisher writes it
	replaced          map[string]bool              // nodes that were deleted and created again
	keys              map[string]map[string]string // version of a Node -> its keys
	records           map[string]map[string]bool   // version of a Node -> the keys in its record

	meanings      []meaning         // what users have written, if others replace definitions
	unmeant       map[string]bool   // rules that users have written while the definition was not Assay's
	wishes        map[string]object // by rule: what users have written last
	replacedByNFD bool              // the definition of rules is not Assay's

	seen       int64 // revision up to which changes were checked
	story      []string
	hash       uint64
	violations []string
	check      *checker
}

func newWorld(t *tape, log logr.Logger) *world {
	w := &world{
		tape: t, server: apiserver.New(apiserver.Resources()...), start: time.Now(), log: log,
		facts: map[string]map[string]string{}, versions: map[string]int{}, boots: map[string]int{}, silent: map[string]bool{}, replaced: map[string]bool{}, keys: map[string]map[string]string{}, records: map[string]map[string]bool{}, deposed: map[string]bool{}, replicas: 1,
		short: map[string]bool{}, workers: map[string]*worker{}, hosts: map[string]*host{}, contents: map[string]object{}, pools: map[string]int64{}, wishes: map[string]object{}, unmeant: map[string]bool{},
	}
	w.check = newChecker(w)
	w.define()
	if w.n(4) == 3 {
		w.replicas = 2
	}
	w.nodes, w.attributes, w.employed = 2+w.n(4), 1+w.n(3), w.n(3)
	if w.sharing = w.employed > 0 && w.n(3) == 2; w.sharing {
		w.announceSets()
	}
	if w.losing = w.n(3) == 2; w.losing {
		w.requireFeatures()
	}
	if w.devices {
		w.readDevices()
	}
	if w.declares {
		w.declare()
	}
	for i := range w.nodes {
		w.addNode(nodeName(i))
		w.publish(nodeName(i))
	}
	if w.n(2) == 1 {
		for i := range w.nodes {
			w.vendor(nodeName(i))
		}
	}
	for i := range 1 + w.n(3) {
		w.editRule(i)
	}
	for _, c := range w.server.Since(0) {
		if c.Resource.Name == "nodefeaturerules" {
			w.noteRule(c)
		}
	}
	w.seen = w.server.Revision()
	w.seed()
	return w
}

// tell adds a line to the log of the schedule. Two runs of a seed are compared by their logs.
func (w *world) tell(format string, args ...any) {
	line := fmt.Sprintf("%10s %s", time.Since(w.start).Round(time.Millisecond), fmt.Sprintf(format, args...))
	for _, b := range []byte(line) { // FNV-1a
		w.hash = (w.hash ^ uint64(b)) * 1099511628211
	}
	w.story = append(w.story, line)
}

func (w *world) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.tell("VIOLATION: %s", text)
	w.violations = append(w.violations, text)
}

// do executes a request of a client that is not simulated.
func (w *world) do(by, method, path string, body any) {
	if code, answer := w.server.Do(by, method, path, body); code >= 300 {
		w.violate("%s by %s: %s %s: %d %s", method, by, path, body, code, answer)
	}
}

// boot starts the program.
func (w *world) boot() {
	w.started++
	name := fmt.Sprintf("controller-%d", w.started)
	p, err := startController(w.server, name, w.config(), w.devices, w.log.WithName(name))
	if err != nil {
		w.violate("start: %v", err)
		return
	}
	w.programs = append(w.programs, p)
	w.tell("%s starts", name)
}

func (w *world) crash(p *program) {
	w.tell("%s crashes", p.name)
	p.crash()
	w.programs = slices.DeleteFunc(w.programs, func(other *program) bool { return other == p })
}

// rollOut replaces a program, as a new version would, while a worker's NodeFeature is missing: the next program has never seen it.
func (w *world) rollOut(p *program, node string) {
	if !p.synced || p.stopping {
		return
	}
	w.deleteFeature(node)
	w.stop(p)
	w.boot()
	w.drain(time.Minute)
}

// expireLease lets the lease of a process that has ended expire, without time passing for anything else.
func (w *world) expireLease() {
	w.tell("the lease of %s expires", w.holder)
	w.do("clock", http.MethodPatch, leasePath, object{"spec": object{"holderIdentity": ""}})
}

// publishers returns the running publishers.
func (w *world) publishers() (out []*program) {
	for _, node := range slices.Sorted(maps.Keys(w.workers)) {
		out = append(out, w.workers[node].program)
	}
	return out
}

// all returns the running programs.
func (w *world) all() []*program {
	out := append(slices.Clone(w.programs), w.publishers()...)
	if w.extender != nil {
		out = append(out, w.extender.program)
	}
	return out
}

// takeOver replaces a program whose successor's first list of NodeFeatures or rules lacks one. A rule may be edited meanwhile. Without a rule,
// removals are due after the hold time.
func (w *world) takeOver(p *program) {
	resource := one(w.tape, "nodefeatures", "nodefeatures", "nodefeaturerules")
	list := w.server.List(resource)
	if !p.synced || p.stopping || len(list) == 0 {
		return
	}
	name := one(w.tape, list...)["metadata"].(object)["name"].(string)
	w.omitted = resource + " " + name
	w.stop(p)
	switch third := resource == "nodefeatures" && w.server.Get("nodes", "", name) == nil; {
	case w.n(2) == 0:
	case third: // the next version of the rule that reads the facts of third parties gives its key, too
		w.writeRule(ofThird, w.n(4), fmt.Sprint(w.n(2)))
	default:
		w.editRule(w.n(3))
	}
	w.boot()
	w.drain(time.Minute)
	if w.omitted = ""; resource == "nodefeaturerules" {
		w.drain(quiet)
	}
}

// relist has a program list the NodeFeatures again, in a list that lacks one which it has seen. The object is there: nothing may change, also
// when the object has been missing for longer than the grace period.
func (w *world) relist(p *program) {
	list := w.server.List("nodefeatures")
	if !p.synced || p.stopping || len(list) == 0 {
		return
	}
	w.drain(time.Second)
	w.omitted = "nodefeatures " + below(one(w.tape, list...), "metadata")["name"].(string)
	for _, watch := range p.client.Watches() {
		if resource, _ := watch.At(); resource == "nodefeatures" {
			w.tell("watch of %s expires", watch)
			w.server.Compact()
			watch.Expire()
		}
	}
	w.drain(time.Minute)
	if w.omitted = ""; w.n(2) == 0 {
		w.drain(quiet)
	}
}

// editOneOfTwo replaces a program while one of two rules that give a key is edited, and no node has the facts any more because of which both
// gave it. The next process knows that both gave the key, but not which of them gave it to a node: the edit does not explain that all
// nodes lose it.
func (w *world) editOneOfTwo(p *program) {
	if !p.synced || p.stopping || w.attributes < 3 || w.losing {
		return
	}
	const first, second, given = 0, 2, "3" // a value that no other event draws
	set := func(ofFirst, ofOthers map[string]string) {
		for i, node := range w.names() {
			if w.facts[node] == nil {
				continue
			}
			if maps.Copy(w.facts[node], ofOthers); i == 0 {
				maps.Copy(w.facts[node], ofFirst)
			}
			w.tell("host %s: %v", node, w.facts[node])
			w.examine(node)
		}
	}
	w.writeRule(first, sharing, given)
	w.writeRule(second, sharing, given)
	set(map[string]string{"a0": given, "a2": "0"}, map[string]string{"a0": "0", "a2": given})
	w.drain(quiet)
	if p.stopping || w.running(p.name) == nil {
		return
	}
	w.stop(p)
	w.writeRule(first, sharing, "1")
	set(map[string]string{"a0": "0"}, map[string]string{"a2": "0"})
	w.boot()
	w.drain(time.Minute)
}

// omit drops the object from a list that takeOver has chosen.
func (w *world) omit(p *program, watch *apiserver.Watch) bool {
	resource, name, _ := strings.Cut(w.omitted, " ")
	if watched, _ := watch.At(); w.omitted == "" || watched != resource || watch.Next() != "initial ADDED "+name {
		return false
	}
	return w.skip(p, watch)
}

// skip drops an object from a list.
func (w *world) skip(p *program, watch *apiserver.Watch) bool {
	about := watch.Next()
	if !watch.Skip() {
		return false
	}
	w.tell("leave out for %s: %s", watch, about)
	w.short[p.name+" "+watch.String()] = true
	w.check.everywhere++ // its arrival later is a cause of writes
	return true
}

// lacks reports whether an initial list of a program lacked an object.
func (w *world) lacks(program string) bool {
	for watch := range w.short {
		if strings.HasPrefix(watch, program+" ") {
			return true
		}
	}
	return false
}

// working returns the number of programs that were not asked to stop.
func (w *world) working() (n int) {
	for _, p := range w.programs {
		if !p.stopping {
			n++
		}
	}
	return n
}

// stop asks a program to end, as a rolling update does. It goes on as long as it has requests to send, and another one starts meanwhile.
func (w *world) stop(p *program) {
	if !p.synced || p.stopping || p.lacksSets() {
		return // see crash
	}
	w.tell("%s is asked to stop", p.name)
	p.stopping = true
	p.stop()
}

// running returns a program by its name; nil: it does not run.
func (w *world) running(name string) *program {
	for _, p := range w.programs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// bury removes programs that ended by themselves because they lost the lease.
func (w *world) bury() {
	for _, p := range slices.Clone(w.programs) {
		select {
		case err := <-p.done:
			p.client.Close()
			if err != nil && strings.Contains(err.Error(), "caches to sync") {
				err = errors.New("timed out waiting for caches to sync") // which controller reports it first is not determined
			}
			w.tell("%s ends: %v", p.name, err)
			w.programs = slices.DeleteFunc(w.programs, func(other *program) bool { return other == p })
		default:
		}
	}
}

// wait waits until all goroutines are blocked, and checks the writes.
func (w *world) wait() {
	if w.yields {
		runtime.Gosched()
	}
	synctest.Wait()
	w.seed()
	for _, text := range w.server.Unsupported() {
		w.violate("unsupported request: %s", text)
	}
	for _, c := range w.server.Since(w.seen) {
		w.seen = c.Revision
		w.tell("  r%d %s %s %s by %s%s", c.Revision, strings.ToLower(c.Type), c.Resource.Name, c.Key, c.By, w.difference(c))
		switch c.Resource.Name {
		case "nodefeaturesets":
			w.noteSet(c)
		case "nodefeaturerules":
			w.noteRule(c)
		}
		w.check.change(c)
		w.check.baseline(c)
		w.check.published(c)
		if c.Resource.Name == "leases" {
			if w.holder = c.By; below(c.New, "spec")["holderIdentity"] == "" {
				w.holder = ""
			}
		}
	}
	w.bury()
	if w.extender != nil {
		w.extender.lacksSets()
		w.check.know(w.extender)
	}
	for _, p := range w.programs {
		p.lacksSets()
		w.check.sent(p)
		if !w.calm {
			w.check.floor(p)
			w.check.look(p)
		}
	}
}

// seed sets the seed of the clients' jitter in each step, since goroutines use it in any order. It does so only if some have: it
// takes longer than most steps. It is called while they are blocked: the operating system can interrupt this goroutine at any point.
// Each check draws, too: how many there are between two lines of the story depends on the order of what happens at one time.
func (w *world) seed() {
	now := moment{time.Now(), len(w.story)}
	if now == w.seeded {
		return
	}
	w.seeded = now
	if w.drawn == nil || rand.Int63() != w.drawn.Int63() {
		w.drawn = rand.New(rand.NewSource(w.jitter))
		rand.Seed(w.jitter) //nolint:staticcheck // client-go's jitter has no other source
	}
}

// moment is a point of a schedule.
type moment struct {
	time  time.Time
	lines int // of the story
}

// difference describes a change of a Node.
func (w *world) difference(c apiserver.Change) string {
	if c.Resource.Name != "nodes" || c.Type != apiserver.Modified {
		return ""
	}
	before, after := w.keysOf(c.Old), w.keysOf(c.New)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if old, had := before[k]; !had {
			out = append(out, fmt.Sprintf("+%s=%s", k, after[k]))
		} else if old != after[k] {
			out = append(out, fmt.Sprintf("~%s=%s->%s", k, old, after[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if _, has := after[k]; !has {
			out = append(out, fmt.Sprintf("-%s=%s", k, before[k]))
		}
	}
	return ": " + strings.Join(out, " ")
}

// odd is added to all times that pass, so that they do not end at the moment at which a timer of a program is due, such as one of a minute:
// the Go runtime draws which of two timers fires first (seed 545 had two traces).
const odd = 7 * time.Microsecond

// pass advances the time, up to the next request.
func (w *world) pass(d time.Duration) {
	w.wait()
	for _, p := range w.all() {
		if p.requests(); !p.synced {
			d = min(d, syncPeriod)
		}
	}
	select { // of a request that was answered meanwhile
	case <-w.server.Arrived():
	default:
	}
	select {
	case <-time.After(d + odd):
	case <-w.server.Arrived():
	}
	w.wait()
}

// drain runs without faults for some time. It returns whether no Node was written.
func (w *world) drain(d time.Duration) (quiet bool) {
	end, from := time.Now().Add(d), w.server.Revision()
	w.tell("without faults for %s", d)
	w.wait()
	for time.Now().Before(end) {
		if !w.flow() {
			w.pass(time.Until(end))
		}
		if len(w.violations) > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(w.server.Since(from), func(c apiserver.Change) bool { return c.Resource.Name == "nodes" })
}

// flow answers all requests and delivers all events. It reports whether there were any.
func (w *world) flow() (any bool) {
	for _, p := range w.all() {
		any = w.flowOf(p) || any
	}
	return any
}

// answer answers a request, and returns the status code.
func (w *world) answer(p *program, r *apiserver.Request) int {
	code := r.Answer()
	if code >= http.StatusBadRequest {
		w.check.failed(p, r)
	}
	return code
}

// deliver delivers the next event of a watch. Informers handle events that arrive together in an order that a `select` draws, so each is
// handled before the next one arrives; initial objects differ, and are not handled before the last one.
func (w *world) deliver(watch *apiserver.Watch) {
	initial := watch.Initial()
	if watch.Deliver(); !initial {
		synctest.Wait()
		w.seed()
	}
}

func (w *world) flowOf(p *program) (any bool) {
	for _, r := range p.requests() {
		w.tell("answer %s: %d", r, w.answer(p, r))
		p.answered++
		w.wait()
		any = true
	}
	for _, watch := range p.client.Watches() {
		if !watch.Waits() {
			continue
		}
		for watch.Waits() {
			if !w.omit(p, watch) {
				w.deliver(watch)
			}
		}
		w.wait()
		any = true
	}
	for _, item := range p.queues.ready() {
		w.release(p, item)
		w.wait()
		any = true
	}
	return any
}

// end stops all running programs.
func (w *world) end() {
	for len(w.programs) > 0 {
		w.crash(w.programs[0])
	}
	for _, node := range w.names() {
		w.dismiss(node)
	}
	if w.extender != nil {
		w.endExtender()
	}
	synctest.Wait()
}
