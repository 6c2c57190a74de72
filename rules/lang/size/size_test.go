package size

import "testing"

// The size of an object's JSON is the same for the same values, however they are spelled, and more for more values.
func TestJSONCountsValuesAndNotPunctuationInStrings(t *testing.T) {
	for text, same := range map[string]string{
		`"a,b:c[d"`: `"a.b.c.d"`,
		`["a\",b"]`: `["a\".b"]`,
		`{"a":"b"}`: `{"c":"d"}`,
	} {
		if a, b := JSON([]byte(text)), JSON([]byte(same)); a != b {
			t.Errorf("%s has %d bytes, %s has %d, want the same", text, a, same, b)
		}
	}
	for less, more := range map[string]string{
		`[]`:        `[[]]`,
		`[1]`:       `[1,2]`,
		`{}`:        `{"a":1}`,
		`"a"`:       `"ab"`,
		`{"a":1}`:   `{"a":1,"b":2}`,
		`["a","b"]`: `["a","b","c"]`,
	} {
		if a, b := JSON([]byte(less)), JSON([]byte(more)); a >= b {
			t.Errorf("%s has %d bytes, %s has %d, want more", less, a, more, b)
		}
	}
}

// A budget gives exactly what it has, and nothing after a request that it could not meet.
func TestBudgetIsExact(t *testing.T) {
	b := NewBudget(10)
	if !b.Take(4) || !b.Take(6) || b.Over() || b.Used() != 10 {
		t.Fatalf("10 bytes of 10 are not available: used %d", b.Used())
	}
	if b.Take(1) || !b.Over() || b.Take(0) || b.Used() != 10 {
		t.Errorf("an exhausted budget gives more: used %d", b.Used())
	}
	if b = nil; !b.Take(1<<40) || b.Over() || b.Used() != 0 {
		t.Error("a nil budget is limited")
	}
}
