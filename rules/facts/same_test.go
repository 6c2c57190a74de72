package facts

import "testing"

// TestSameComparesContentOfOneInterner compares facts that were built twice.
func TestSameComparesContentOfOneInterner(t *testing.T) {
	in := NewInterner()
	build := func(name, value string) *Facts {
		return FromMap(map[string]Feature{name: {Attributes: NewAttributes(map[string]string{"a": value})}}, in)
	}
	one := build("x.y", "1")
	for name, tc := range map[string]struct {
		a, b *Facts
		want bool
	}{
		"Itself":     {one, one, true},
		"Equal":      {one, build("x.y", "1"), true},
		"OtherValue": {one, build("x.y", "2"), false},
		"OtherName":  {one, build("x.z", "1"), false},
		"Nil":        {nil, nil, true},
		"NilAndOne":  {nil, one, false},
		"OneAndNil":  {one, nil, false},
	} {
		if got := tc.a.Same(tc.b); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestOnlyFeaturesOfTheNodeObjectAreOfKubernetes(t *testing.T) {
	for feature, want := range map[string]bool{
		NodeFeature: true, ProviderFeature: true, DeclaredFeature: true, ConditionFeature: true, "kubernetes.other": false, "": false, "cpu.cpuid": false,
	} {
		if got := IsKubernetes(feature); got != want {
			t.Errorf("%q: %t, want %t", feature, got, want)
		}
	}
}

func TestARowOfNothingHasNoAttributes(t *testing.T) {
	if got := (Row{}).Map(); got != nil {
		t.Errorf("no row has %v", got)
	}
	rows := NewInstances([]map[string]string{{"a": "1", "b": "2"}, {"b": "3"}})
	for i, want := range []int{2, 1} {
		if got := rows.Row(i); len(got.Map()) != want || len(got.Names()) != want {
			t.Errorf("row %d has %v", i, got.Map())
		}
		value, ok := rows.Row(i).GetKey(MakeKey("b"))
		if again, found := rows.Row(i).Get("b"); !ok || !found || value != []string{"2", "3"}[i] || again != value {
			t.Errorf("b of row %d is %q, %t, and %q, %t", i, value, ok, again, found)
		}
		if value, ok := rows.Row(i).GetKey(MakeKey("c")); ok {
			t.Errorf("row %d has c: %q", i, value)
		}
	}
}

// TestANilInternerSharesNothing checks that sets stay what they are without an Interner, and that one Interner shares equal ones.
func TestANilInternerSharesNothing(t *testing.T) {
	var none *Interner
	f, a, i := NewFlags("x"), NewAttributes(map[string]string{"a": "1"}), NewInstances([]map[string]string{{"a": "1"}})
	if none.Flags(f) != f || none.Attributes(a) != a || none.Instances(i) != i {
		t.Error("a set is another one")
	}
	in := NewInterner()
	if in.Flags(nil) != nil || in.Attributes(nil) != nil || in.Instances(nil) != nil {
		t.Error("no set is a set")
	}
	if in.Flags(f) != in.Flags(NewFlags("x")) || in.Attributes(a) != in.Attributes(NewAttributes(map[string]string{"a": "1"})) ||
		in.Instances(i) != in.Instances(NewInstances([]map[string]string{{"a": "1"}})) {
		t.Error("equal sets of one Interner are two")
	}
	if in.Flags(f) == in.Flags(NewFlags("y")) {
		t.Error("different sets of one Interner are one")
	}
}
