package customrules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/internal/worker/customrules"
)

func TestCustomRulesOfEveryNotation(t *testing.T) {
	features := discovery.NewResult()
	features.Flags("kernel.loadedmodule", []string{"e1000", "veth"})
	features.Attributes("kernel.version", map[string]string{"major": "6", "full": "6.1.0"})
	features.Attributes("system.name", map[string]string{"nodename": "n1"})
	features.Instances("pci.device", []map[string]string{{"vendor": "15b3", "device": "1017", "class": "0200"}})
	p, errs := customrules.Engine{}.Compile([]custom.Document{{Origin: "conf", Data: []byte(`
- name: legacy
  matchOn:
  - loadedKMod: [e1000]
- name: shorthand
  labels: {shorthand: "true"}
  matchFeatures:
  - feature: kernel.loadedmodule
    matchExpressions: [e1000, veth]
- name: newer operators
  labels: {ge: "@kernel.version.major"}
  matchFeatures:
  - feature: kernel.version
    matchExpressions: {full: {op: Ge, value: ["6.0"], type: version}}
- name: wrong
  labels: {wrong: "true"}
  matchFeatures:
  - feature: kernel.version
    matchExpressions: {full: {op: InRegexp, value: ["["]}}
- name: back-reference
  labels: {chain: "true"}
  matchFeatures:
  - feature: rule.matched
    matchExpressions: {shorthand: {op: IsTrue}}
`)}})
	if len(errs) == 0 || !strings.Contains(errs[0].Error(), "not a regular expression") {
		t.Errorf("errors = %v, want one about the regular expression", errs)
	}
	labels, failed := p.Labels("n1", &features.Features)
	want := map[string]string{"custom-legacy": "true", "shorthand": "true", "ge": "6", "chain": "true"}
	if diff := cmp.Diff(want, labels); diff != "" || len(failed) > 0 {
		t.Error(diff, failed)
	}
}

// A worker writes NodeFeatures and never Nodes.
func TestCustomRulesGiveLabelsAlone(t *testing.T) {
	features := discovery.NewResult()
	features.Flags("kernel.loadedmodule", []string{"e1000"})
	p, errs := customrules.Engine{}.Compile([]custom.Document{{Origin: "conf", Data: []byte(`
- name: everything
  labels: {found: "true"}
  annotations: {told: "true"}
  extendedResources: {slots: "2"}
  taints: [{key: example.com/found, effect: NoSchedule}]
  matchFeatures:
  - feature: kernel.loadedmodule
    matchExpressions: {e1000: {op: Exists}}
`)}})
	said := fmt.Sprint(errs)
	for _, want := range []string{"annotations", "extendedResources", "taints"} {
		if !strings.Contains(said, want) {
			t.Errorf("no error says that %s have no effect here; the errors are %s", want, said)
		}
	}
	labels, failed := p.Labels("n1", &features.Features)
	if diff := cmp.Diff(map[string]string{"found": "true"}, labels); diff != "" || len(failed) > 0 {
		t.Error(diff, failed)
	}
}
