package match_test

import (
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/match"
)

// A rule that wrote 500Gi was an error that advised type: version, with which a node of 8 GiB matches.
func TestQuantitiesAreComparedInBytes(t *testing.T) {
	compile := func(feature, element string, strict bool, op nfdv1alpha1.MatchOp, values ...string) (*match.Matcher, error) {
		m, errs := match.Compile(nil, []match.Term{{Feature: feature, Expressions: map[string]*match.Expr{element: {Op: op, Value: values}}}}, match.Options{Strict: strict})
		return m, errs.ToAggregate()
	}
	node := facts.New(&nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
		"memory.total": {Elements: map[string]string{"bytes": "8589934592"}}, "cpu.cache": {Elements: map[string]string{"l3.bytes": "33554432", "l4.bytes": "1048576"}},
	}}, nil)
	for _, tc := range []struct {
		feature, element string
		op               nfdv1alpha1.MatchOp
		values           []string
		want             bool
	}{
		{"memory.total", "bytes", "Gt", []string{"500Gi"}, false},
		{"memory.total", "bytes", "Ge", []string{"8Gi"}, true},
		{"Memory.Total", "bytes", "Gt", []string{"8Gi"}, false},
		{"memory.total", "bytes", "GeLe", []string{"7.5Gi", "8589934592"}, true},
		{"memory.total", "bytes", "GtLt", []string{"8G", "9G"}, true},
		{"cpu.cache", "l3.bytes", "Le", []string{"32Mi"}, true},
		{"cpu.cache", "l3.bytes", "Lt", []string{"32M"}, false},
		{"cpu.cache", "l4.bytes", "Ge", []string{"1Mi"}, true},
	} {
		m, err := compile(tc.feature, tc.element, false, tc.op, tc.values...)
		if err != nil {
			t.Errorf("%s %s %v: %v", tc.element, tc.op, tc.values, err)
			continue
		}
		if got, err := m.Eval(node, false); err != nil || got.OK != tc.want {
			t.Errorf("%s %s %v: %v, %v, want %v", tc.element, tc.op, tc.values, got.OK, err, tc.want)
		}
		if _, err := compile(tc.feature, tc.element, true, tc.op, tc.values...); err == nil {
			t.Errorf("%s %s %v compiles with --nfd-strict, and is an error in NFD", tc.element, tc.op, tc.values)
		}
	}
	for _, tc := range []struct {
		feature, element string
		strict           bool
		value, want      string
	}{
		{"memory.total", "bytes", true, "500Gi", "NFD has no quantities: write 536870912000"},
		{"memory.total", "bytes", false, "500m", "m is milli: write M or Mi"},
		{"memory.total", "bytes", false, "500GiB", "write a number of bytes, or a quantity such as 16Gi"},
		{"memory.total", "mib", false, "500Gi", "mib is not in bytes and takes no quantity"},
		{"kernel.version", "full", false, "5.10", `add "type: version"`},
		{"vendor.thing", "bytes", false, "500Gi", "this is not an integer"},
	} {
		if _, err := compile(tc.feature, tc.element, tc.strict, "Gt", tc.value); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.element, tc.value, err, tc.want)
		}
	}
}
