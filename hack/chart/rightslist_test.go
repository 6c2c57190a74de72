package chart

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDoctorKnowsTheRightsOfTheChart compares the rights that assay doctor checks with those that the chart grants with default values.
func TestDoctorKnowsTheRightsOfTheChart(t *testing.T) {
	table, err := os.ReadFile("../../internal/rights/rights.tsv")
	if err != nil {
		t.Fatal(err)
	}
	all := roles(t, objects(t, mustRender(t, nil)))
	for _, component := range []string{"controller", "worker", "webhook"} {
		var granted, checked []string
		add := func(list *[]string, scope string, groups, resources, verbs, names []string) {
			for _, group := range groups {
				for _, resource := range resources {
					for _, name := range names {
						for _, verb := range verbs {
							*list = append(*list, strings.Join([]string{scope, group, resource, verb, name}, " "))
						}
					}
				}
			}
		}
		for kind, scope := range map[string]string{"ClusterRole": "cluster", "Role": "own"} {
			for _, rule := range all[kind+"/assay-"+component] {
				names, groups := rule.ResourceNames, slices.Clone(rule.APIGroups)
				if len(names) == 0 {
					names = []string{"-"}
				}
				for i := range groups {
					if groups[i] == "" {
						groups[i] = "-"
					}
				}
				add(&granted, scope, groups, rule.Resources, rule.Verbs, names)
			}
		}
		for line := range strings.Lines(string(table)) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(row) == 7 && row[0] == component && row[6] != "" {
				add(&checked, row[1], strings.Fields(row[2]), strings.Fields(row[3]), strings.Fields(row[4]), strings.Fields(row[5]))
			}
		}
		for _, right := range granted {
			if !slices.Contains(checked, right) {
				t.Errorf("the chart grants %q to the %s, and internal/rights/rights.tsv does not list it", right, component)
			}
		}
		for _, right := range checked {
			if !slices.Contains(granted, right) {
				t.Errorf("internal/rights/rights.tsv lists %q of the %s, and the chart does not grant it", right, component)
			}
		}
	}
}
