package expr

import "testing"

const benchmarkText = "rack{(n1-1)/42+1}"

func BenchmarkCompile(b *testing.B) {
	scope := newMachine("n43").scope()
	b.ReportAllocs()
	for b.Loop() {
		if text, problems := Compile(benchmarkText, Strict, Auto, scope); text == nil {
			b.Fatal(problems)
		}
	}
}

func BenchmarkEvaluate(b *testing.B) {
	for name, source := range map[string]string{
		"Arithmetic": benchmarkText,
		"Format":     "{n1.block_offset(42):02d}",
		"Feature":    "{@kernel.version.major}.{@kernel.version.minor}",
		"Instance":   "{@pci.device[0].vendor}",
		"Split":      `{host.split("-")[0].upper()}`,
		"Missing":    "{@kernel.version.nope}",
		"Whole":      "{@kernel.version.major}",
		"Literal":    "true",
	} {
		b.Run(name, func(b *testing.B) {
			m := newMachine("n43")
			text, problems := Compile(source, Strict, Auto, m.scope())
			if text == nil {
				b.Fatal(problems)
			}
			var buffer []byte
			b.ReportAllocs()
			for b.Loop() {
				m.left = 1000
				if name == "Whole" {
					if _, err := text.Eval(m); err != nil {
						b.Fatal(err)
					}
					continue
				}
				var err error
				if buffer, err = text.Append(buffer[:0], m); (err != nil) != (name == "Missing") {
					b.Fatal(err)
				}
			}
		})
	}
}
