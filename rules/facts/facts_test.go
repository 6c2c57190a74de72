package facts

import "testing"

func TestKeepsWhatWasGiven(t *testing.T) {
	f := FromMap(map[string]Feature{"cpu.cpuid": {Flags: NewFlags("AVX", "AES", "AVX")}}, NewInterner())
	if !f.Feature("cpu.cpuid").Flags.Has("AES") || f.Feature("cpu.cpuid").Flags.Len() != 2 {
		t.Errorf("got %v", f.Feature("cpu.cpuid").Flags.Names())
	}
}
