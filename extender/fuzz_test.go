package extender_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/assay-project/assay/extender"
)

// FuzzDecider feeds bodies to all three questions. What encoding/json understands is understood, unless it exceeds a limit; the
// answers are JSON; each node that was asked about is in one of the two lists, and no other is; only those that were asked
// about are scored or may be preempted on.
func FuzzDecider(f *testing.F) {
	names := []string{"n1", "n2"}
	asks := pod("ml", prefersAMX, map[string]string{"assay.dev/required-features": amx})
	f.Add(body(f, extenderv1.ExtenderArgs{Pod: pod("batch", nil, nil), NodeNames: &names}))
	f.Add(body(f, extenderv1.ExtenderArgs{Pod: asks, NodeNames: &names}))
	f.Add(body(f, extenderv1.ExtenderPreemptionArgs{Pod: asks, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
		"n1": {Pods: []*extenderv1.MetaPod{{UID: "a"}}}, "n2": {NumPDBViolations: 1}, "n3": nil,
	}}))
	for _, seed := range []string{
		`{"Pod":{"metadata":{"namespace":"batch","labels":{"a":"\u0041"}}},"NodeNames":["\"","n2","\u006e2"]}`,
		`{"Pod":{"metadata":{"namespace":"batch"},"metadata":{"name":"p"}},"Pod":null,"NodeNames":["n2"],"NodeNames":["n1"]}`,
		`{"NodeNameToMetaVictims":{"n2":null}}`,
		` { "pod" : {} , "nodenames" : [ ] } `,
		`{"Pod":{"metadata":{"annotations":null,"labels":[]}},"NodeNames":["n\ud800",""],"Nodes":{"items":[]}}`,
	} {
		f.Add([]byte(seed))
	}
	d := decider(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			_, _, _ = d.Filter(data, nil)
			_, _ = d.Prioritize(data)
			_, _ = d.Preempt(data)
			return
		}
		checkFilter(t, d, data)
		checkPrioritize(t, d, data)
		checkPreempt(t, d, data)
	})
}

// named decodes the field of a request that names nodes. It is false where a request has it twice or in disguise, which
// encoding/json and scanners read differently, and schedulers never send.
func named[T any](data []byte, field string, into *T) bool {
	var fields map[string]json.RawMessage
	if strings.Count(strings.ToLower(string(data)), strings.ToLower(strconv.Quote(field))) != 1 || json.Unmarshal(data, &fields) != nil {
		return false
	}
	for key, value := range fields {
		if strings.EqualFold(key, field) {
			return json.Unmarshal(value, into) == nil
		}
	}
	return false
}

func checkFilter(t *testing.T, d *extender.Decider, data []byte) {
	answer, _, err := d.Filter(data, nil)
	var got extenderv1.ExtenderFilterResult
	if parse := json.Unmarshal(answer, &got); parse != nil || got.NodeNames == nil {
		t.Fatalf("the answer is %s (%v)", answer, parse)
	}
	var names []string
	understood := named(data, "NodeNames", &names)
	if err != nil {
		if got.Error == "" || len(*got.NodeNames) > 0 {
			t.Errorf("an error is answered by %s", answer)
		}
		return
	}
	if !understood || slices.Contains(names, "") && bytes.Contains(data, []byte("null")) { // null is not a name
		return
	}
	left := map[string]bool{}
	for _, name := range names {
		left[name] = true
	}
	for _, name := range slices.AppendSeq(*got.NodeNames, maps.Keys(got.FailedAndUnresolvableNodes)) {
		if !slices.Contains(names, name) {
			t.Errorf("%q was not asked about", name)
		}
		delete(left, name)
	}
	if len(left) > 0 {
		t.Errorf("nothing is said about %v", left)
	}
}

func checkPrioritize(t *testing.T, d *extender.Decider, data []byte) {
	answer, err := d.Prioritize(data)
	if err != nil {
		return
	}
	var got extenderv1.HostPriorityList
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("the answer is %s (%v)", answer, err)
	}
	var names []string
	if !named(data, "NodeNames", &names) {
		return
	}
	for _, node := range got {
		if !slices.Contains(names, node.Host) || node.Score < 1 || node.Score > extenderv1.MaxExtenderPriority {
			t.Errorf("asked about %q, it gives %+v", names, node)
		}
	}
}

func checkPreempt(t *testing.T, d *extender.Decider, data []byte) {
	answer, err := d.Preempt(data)
	if err != nil {
		return
	}
	var got struct{ NodeNameToMetaVictims map[string]json.RawMessage }
	if err := json.Unmarshal(answer, &got); err != nil || got.NodeNameToMetaVictims == nil {
		t.Fatalf("the answer is %s (%v)", answer, err)
	}
	var victims map[string]any
	if !named(data, "NodeNameToMetaVictims", &victims) {
		return
	}
	for name := range got.NodeNameToMetaVictims {
		if victims[name] == nil && bytes.Count(data, []byte(strconv.Quote(name))) == 1 { // named twice, the first may have some
			t.Errorf("%q was not asked about, or has no victims", name)
		}
	}
}
