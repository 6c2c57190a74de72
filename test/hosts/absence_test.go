package hosts_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// TestTheTableOfAbsenceIsCurrent writes what each feature is if all its files are in one of the states to docs/features.md.
func TestTheTableOfAbsenceIsCurrent(t *testing.T) {
	var table strings.Builder
	table.WriteString("| feature |")
	for _, state := range states {
		fmt.Fprintf(&table, " %s |", state.name)
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(states)) + "\n")
	rows := absenceRows(t)
	for _, feature := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&table, "| %s | %s |\n", feature, strings.Join(rows[feature], " | "))
	}
	for feature := range readPage(t) {
		source, _, _ := strings.Cut(feature, ".")
		if _, ok := rows[feature]; !ok && source != "kubernetes" && source != "dra" && source != "fake" && source != "crypto" && filelessFeatures[feature] == "" {
			t.Errorf("no machine of the tests has %s, so nothing shows what it is without its files", feature)
		}
	}
	const begin, end = "<!-- absence -->\n", "<!-- end of absence -->\n"
	page, err := os.ReadFile(featuresPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(page), begin)
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s: want the lines %q and %q", featuresPage, begin, end)
	}
	want := head + begin + table.String() + end + tail
	if *update {
		if err := os.WriteFile(featuresPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s is out of date; go test ./test/hosts -update writes it", featuresPage)
	}
}

// filelessFeatures do not come from files.
var filelessFeatures = map[string]string{
	"kernel.version": "uname(2)", "system.name": "the name that the worker is configured with", "cpu.cpuid": "instructions of the processor",
	"cpu.se": "as cpu.sgx", "source.unread": "what is not read of files",
}

// absenceRows returns the cells of each feature that depends on files.
func absenceRows(t *testing.T) map[string][]string {
	rows, elements := map[string][]string{}, map[string]int{}
	for _, source := range allSources() {
		for _, name := range machines() {
			files, _ := filesOf(t, name, source.Name())
			want := runSource(t, machine(t, name), source.Name())
			deciding := map[string][]file{}
			for _, f := range files {
				if f.real == "proc/version" || f.real == "sys/devices" {
					continue
				}
				for _, state := range []int{0, 2} {
					h := machine(t, name)
					states[state].set(h.FS.(*host.Tree), f)
					for feature := range changedFeatures(want, runSource(t, h, source.Name())) {
						if !slices.ContainsFunc(deciding[feature], func(d file) bool { return d.real == f.real }) {
							deciding[feature] = append(deciding[feature], f)
						}
					}
				}
			}
			for feature, files := range deciding {
				if elements[feature] > 0 || rows[feature] != nil && size(want, feature) == 0 {
					continue
				}
				rows[feature], elements[feature] = nil, size(want, feature)
				for _, state := range states {
					h := machine(t, name)
					for _, f := range files {
						state.set(h.FS.(*host.Tree), f)
					}
					rows[feature] = append(rows[feature], cell(want, runSource(t, h, source.Name()), feature))
				}
			}
		}
	}
	return rows
}

// changedFeatures returns the features that differ.
func changedFeatures(want, got *discovery.Report) map[string]bool {
	changed := map[string]bool{}
	for name := range names(want, got) {
		if len(attributeChanges(name, want.Features.Attributes, got.Features.Attributes)) > 0 ||
			len(flagChanges(name, want.Features.Flags, got.Features.Flags)) > 0 ||
			len(instanceChanges(name, want.Features.Instances, got.Features.Instances)) > 0 {
			changed[name] = true
		}
	}
	return changed
}

// size returns the number of elements of a feature, -1 if it is absent.
func size(r *discovery.Report, feature string) int {
	n := -1
	if set, ok := r.Features.Flags[feature]; ok {
		n = len(set.Elements)
	}
	if set, ok := r.Features.Attributes[feature]; ok {
		n = max(n, 0) + len(set.Elements)
	}
	if set, ok := r.Features.Instances[feature]; ok {
		n = max(n, 0) + len(set.Elements)
	}
	return n
}

// cell describes a feature in a report, compared with the machine as it is.
func cell(want, got *discovery.Report, feature string) string {
	switch size(got, feature) {
	case -1:
		return "absent"
	case 0:
		return "empty"
	}
	var values []string
	for k, v := range got.Features.Attributes[feature].Elements {
		if want.Features.Attributes[feature].Elements[k] != v {
			values = append(values, "`"+k+"` is `"+v+"`")
		}
	}
	slices.Sort(values)
	switch {
	case len(values) > 0 && len(values) < 3:
		return strings.Join(values, ", ")
	case !changedFeatures(want, got)[feature]:
		return "unchanged"
	}
	for _, e := range got.Features.Instances[feature].Elements {
		if slices.Contains(slices.Collect(maps.Values(e.Attributes)), discovery.Unknown) {
			return "`unknown` values"
		}
	}
	return "what is left"
}
