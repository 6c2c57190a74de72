package extender

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules/requirements"
)

// errUnready is the answer while the caches are not filled.
var errUnready = errors.New("assay extender: the caches of nodes and rules are not filled yet")

// errWholeNodes is the answer to a scheduler that sends whole Nodes. That is a hundred times slower, and the scheduler's own
// plugins then see empty nodes (kubernetes#141781).
var errWholeNodes = errors.New("assay extender: the scheduler sends whole Nodes instead of their names; " +
	"set nodeCacheCapable: true for this extender in the KubeSchedulerConfiguration")

// Decider answers the requests of a scheduler. It is safe for concurrent use.
type Decider struct {
	// Index holds the features of nodes, Requirements the requirements of pods.
	Index        *index.Index
	Requirements *podrequirements.Resolver
	// Now returns the current time; nil: time.Now.
	Now func() time.Time

	memo memo
}

// Sweep deletes cached requirements that no scheduler has used since the last Sweep.
func (d *Decider) Sweep() {
	d.memo.cache().Sweep()
	d.Index.Sweep()
}

func (d *Decider) now() int64 {
	if d.Now != nil {
		return d.Now().Unix()
	}
	return time.Now().Unix()
}

// Filter returns the response to a filter request, an ExtenderFilterResult. Nodes without a required feature go into
// FailedAndUnresolvableNodes, since evicting pods gives no node a feature. Spare is a scratch buffer and can be nil; it is returned
// for reuse. For an error there is a response too, and the error is for metrics.
func (d *Decider) Filter(body, spare []byte) (answer, spareAfter []byte, err error) {
	answer, spare, err = d.filter(body, spare[:0])
	if err != nil {
		answer = filterError(err)
	}
	return answer, spare, err
}

// filterError returns an ExtenderFilterResult with an error. Its list of names is empty, not absent; kube-scheduler only reads Error.
func filterError(err error) []byte {
	text, _ := json.Marshal(extenderv1.ExtenderFilterResult{NodeNames: &[]string{}, Error: err.Error()}) // encoding strings never fails
	return text
}

func (d *Decider) filter(body, failed []byte) (answer, spare []byte, err error) {
	var a args
	if err := d.read(&a, body); err != nil {
		return nil, failed, err
	}
	out := append(make([]byte, 0, len(body)), `{"NodeNames":`...)
	reqs, problem := d.memo.of(d.Requirements, &a.pod)
	if reqs == nil && problem == nil {
		out = append(out, a.nodeNames...)
		return append(out, `,"Error":""}`...), failed, eachName(a.nodeNames, func(span) {})
	}
	check := func([]byte) (*index.Reason, bool) { return problem, false }
	if problem == nil {
		j := d.Index.Judge(reqs, d.now())
		defer j.End()
		check = j.Check
	}
	out = append(out, '[')
	some := false
	err = eachName(a.nodeNames, func(name span) {
		why, noNode := check(name.bare())
		if why == nil {
			if some {
				out = append(out, ',')
			}
			some = true
			out = append(out, name...)
			return
		}
		if len(failed) > 0 {
			failed = append(failed, ',')
		}
		failed = append(append(failed, name...), ':')
		if noNode {
			failed = append(failed, why.NoNode...)
		} else {
			failed = append(failed, why.JSON...)
		}
	})
	out = append(out, `],"FailedAndUnresolvableNodes":{`...)
	out = append(out, failed...)
	return append(out, `},"Error":""}`...), failed, err
}

// Prioritize returns the response to a prioritize request, a HostPriorityList. It omits nodes with a score of zero, and all nodes
// if they have the same score: kube-scheduler adds zero for missing nodes, and parsing 500 scores that decide nothing takes it
// longer than placing the pod.
func (d *Decider) Prioritize(body []byte) (answer []byte, err error) {
	var a args
	if err := d.read(&a, body); err != nil {
		return nil, err
	}
	reqs, problem := d.memo.of(d.Requirements, &a.pod)
	if reqs == nil || problem != nil || len(reqs.Preferred) == 0 {
		return []byte(`[]`), eachName(a.nodeNames, func(span) {})
	}
	j := d.Index.Judge(&requirements.Requirements{Preferred: reqs.Preferred}, 0)
	defer j.End()
	out := []byte{'['}
	var lowest, highest int64 = index.MaxScore, 0
	err = eachName(a.nodeNames, func(name span) {
		score := j.Score(name.bare())
		lowest, highest = min(lowest, score), max(highest, score)
		if score == 0 {
			return
		}
		if out[len(out)-1] != '[' {
			out = append(out, ',')
		}
		out = append(append(out, `{"Host":`...), name...)
		out = append(out, `,"Score":`...)
		out = append(strconv.AppendInt(out, score, 10), '}')
	})
	if err != nil {
		return nil, err
	}
	if lowest >= highest {
		out = out[:1]
	}
	return append(out, ']'), nil
}

// Preempt returns the response to a preempt request, an ExtenderPreemptionResult with the candidates that have the required
// features. Without it, pods would be evicted from nodes that the pod cannot use.
func (d *Decider) Preempt(body []byte) (answer []byte, err error) {
	var a args
	if err := a.parse(body); err != nil {
		return nil, err
	}
	switch {
	case !d.Index.Synced():
		return nil, errUnready
	case a.victims != nil && a.metaVictim == nil:
		return nil, errWholeNodes
	}
	reqs, problem := d.memo.of(d.Requirements, &a.pod)
	check := func([]byte) (*index.Reason, bool) { return problem, false }
	if reqs != nil && problem == nil {
		j := d.Index.Judge(reqs, d.now())
		defer j.End()
		check = j.Check
	}
	result := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}}
	if a.metaVictim != nil {
		err := eachField(a.metaVictim, func(name, victims span) error {
			if victims == nil { // the scheduler would dereference nil
				return nil
			}
			if why, _ := check(name.bare()); why != nil {
				return nil
			}
			v := &extenderv1.MetaVictims{}
			if err := json.Unmarshal(victims, v); err != nil {
				return errMalformed
			}
			result.NodeNameToMetaVictims[name.text()] = v
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(result)
}

// read parses a request about nodes, or returns why it cannot be answered.
func (d *Decider) read(a *args, body []byte) error {
	if err := a.parse(body); err != nil {
		return err
	}
	switch {
	case a.nodeNames == nil:
		return errWholeNodes
	case !d.Index.Synced():
		return errUnready
	}
	return nil
}
