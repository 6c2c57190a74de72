package facts

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkDecodeHostile reports the cost of objects of the maximum size that the API server accepts.
func BenchmarkDecodeHostile(b *testing.B) {
	list := func(n int, one string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(one, (i*7919)%n)
		}
		return strings.Join(parts, ",")
	}
	objects := map[string]string{
		"100000Flags":              `{"flags":{"a.b":{"elements":{` + list(100_000, `"%05x":{}`) + `}}}}`,
		"100000Attributes":         `{"attributes":{"a.b":{"elements":{` + list(100_000, `"%05x":""`) + `}}}}`,
		"45000DifferentAttributes": `{"instances":{"a.b":{"elements":[` + list(45_000, `{"attributes":{"%05x":""}}`) + `]}}}`,
		"16000Features":            `{"flags":{` + list(16_000, `"a.%05x":{"elements":{}}`) + `}}`,
	}
	for name, text := range objects {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				decode(b, text, NewInterner())
			}
		})
	}
}
