package lru_test

import (
	"fmt"
	"testing"

	"github.com/assay-project/assay/internal/lru"
)

func TestCache(t *testing.T) {
	const most = 100 << 10
	c := lru.New[int](most)
	has := func(n int) bool { _, ok := c.Get(fmt.Append(nil, n)); return ok }
	for i := range 10_000 {
		c.Put(fmt.Sprint(i), i, 1000)
		if c.Bytes() > most {
			t.Fatalf("it takes %d bytes after %d entries, want at most %d", c.Bytes(), i, most)
		}
		if i > 0 && !has(0) {
			t.Fatalf("what is used all the time is forgotten after %d entries", i)
		}
	}
	if has(1) || !has(9999) {
		t.Error("the oldest entry is there, or the last one is not")
	}
	c.Put("9999", 7, 1000)
	if got, _ := c.Get([]byte("9999")); got != 7 {
		t.Errorf("got %d, want what was put last", got)
	}
	c.Put("whole", 1, most)
	if _, ok := c.Get([]byte("whole")); ok || !has(9999) {
		t.Error("one large value displaces all others")
	}
	c.Sweep()
	if !has(9999) || !has(0) {
		t.Error("what was used since the beginning is forgotten")
	}
	c.Sweep()
	c.Sweep()
	if has(9999) || c.Bytes() != 0 {
		t.Errorf("%d bytes of what is not used are left", c.Bytes())
	}
}
