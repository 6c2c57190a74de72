package stringmap_test

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/stringmap"
)

func TestMap(t *testing.T) {
	in := map[string]string{"a": "1", "b": "", "c": "1"}
	m := stringmap.Of(in)
	if got := m.Strings(); !maps.Equal(got, in) {
		t.Errorf("%v, want %v", got, in)
	}
	if !m.Equal(stringmap.Of(maps.Clone(in))) {
		t.Error("equal maps differ")
	}
	in["a"] = "2"
	if got := m.Strings()["a"]; got != "1" {
		t.Errorf("a is %q after the Go map was modified", got)
	}
	m.Strings()["a"] = "2"
	if got := m.Strings()["a"]; got != "1" {
		t.Errorf("a is %q after a returned map was modified", got)
	}
	for name, other := range map[string]map[string]string{
		"OtherValue": in, "Fewer": {"a": "1", "b": ""}, "OtherKey": {"a": "1", "b": "", "d": "1"}, "None": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if m.Equal(stringmap.Of(other)) {
				t.Errorf("%v equals %v", m.Strings(), other)
			}
		})
	}
	if got := stringmap.Of(map[string]string{}).Strings(); got != nil {
		t.Errorf("an empty map is %v, want nil", got)
	}
}

func TestMapsOfAllSizes(t *testing.T) {
	in := map[string]string{}
	before := stringmap.Of(in)
	for i := range 300 {
		in[fmt.Sprintf("key-%d", i)] = fmt.Sprint(i)
		m := stringmap.Of(in)
		if got := m.Strings(); !maps.Equal(got, in) {
			t.Errorf("%v, want %v", got, in)
		}
		if m.Equal(before) || before.Equal(m) {
			t.Errorf("%v equals %v", m.Strings(), before.Strings())
		}
		before = m
	}
}

// maxEntryBytes is the maximum memory of an entry that another map has too.
const maxEntryBytes = 2

// TestCommonEntriesAreKeptOnce: maps of strings that were decoded one by one share their entries.
func TestCommonEntriesAreKeptOnce(t *testing.T) {
	const count, entries = 1000, 100
	decode := func() map[string]string {
		m := make(map[string]string, entries)
		for i := range entries {
			m[fmt.Sprintf("feature.node.kubernetes.io/a-long-name-of-a-feature-%d", i)] = strings.Repeat("v", 40)
		}
		return m
	}
	first := stringmap.Of(decode())
	before := heap()
	kept := make([]stringmap.Map, count)
	for i := range kept {
		kept[i] = stringmap.Of(decode())
	}
	got := (heap() - before) / (count * entries)
	runtime.KeepAlive(first)
	runtime.KeepAlive(kept)
	if got > maxEntryBytes {
		t.Errorf("%d bytes for each entry, want at most %d", got, maxEntryBytes)
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
