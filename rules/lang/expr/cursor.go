package expr

import (
	"fmt"

	"github.com/assay-project/assay/rules/clip"
)

func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *parser) blanks() {
	for p.peek() == ' ' || p.peek() == '\t' {
		p.pos++
	}
}

func (p *parser) word() string {
	start := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) expect(b byte) {
	p.blanks()
	switch {
	case p.failed:
	case p.peek() == b:
		p.pos++
	default:
		p.syntax(p.pos, "missing "+string(rune(b)), "")
	}
}

// maxQuote is the maximum number of bytes of user input in a message.
const maxQuote = 64

func shown(s string) string { return clip.Text(s, maxQuote) }

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
