package garbage

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbageOfALargeHeapIsLimited(t *testing.T) {
	for name, test := range map[string]struct {
		small, huge int
		live        uint64
		want        int
	}{
		"Start":        {50, 20, 0, 50},
		"Small":        {50, 20, 25 << 20, 50},
		"AtTheLimit":   {50, 20, 128 << 20, 50},
		"Large":        {50, 20, 160 << 20, 40},
		"SmallReview":  {200, 20, 20 << 20, 200},
		"LargeReview":  {200, 20, 160 << 20, 40},
		"Huge":         {50, 20, 4 << 30, 20},
		"HugeAndShort": {800, 100, 4 << 30, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (percents{test.small, test.huge}).of(test.live); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestGarbageIsLimitedAfterEachCollection lets a heap grow and shrink.
func TestGarbageIsLimitedAfterEachCollection(t *testing.T) {
	adjust(percents{200, 20})
	const size = 128 << 20
	large := make([]byte, size)
	for _, want := range []func(uint64) bool{
		func(percent uint64) bool { return percent <= limit*100/size },
		func(percent uint64) bool { return percent > limit*100/size },
	} {
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			runtime.GC()
			percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
			metrics.Read(percent)
			if want(percent[0].Value.Uint64()) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("GOGC is %d", percent[0].Value.Uint64())
			}
		}
		runtime.KeepAlive(large)
		large = nil
	}
}
