package report

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/assay-project/assay/rules/manifest"
)

// maxExcerpt is the maximum number of characters of a line in an excerpt, so that it fits into a terminal.
const maxExcerpt = 100

// Excerpt returns the line of a problem with its number, and a line with a caret below it. It is empty for a problem without a
// position.
func Excerpt(f *manifest.File, at manifest.Position) string {
	line := []rune(f.Line(at.Line))
	if at.Line < 1 || len(line) == 0 {
		return ""
	}
	column := min(max(at.Column, 1), len(line)+1) - 1
	from := 0
	if len(line) > maxExcerpt && column > maxExcerpt*3/4 {
		from = column - maxExcerpt/2
	}
	shown := line[from:min(len(line), from+maxExcerpt)]
	for i, r := range shown {
		if !unicode.IsPrint(r) {
			shown[i] = ' '
			if r == '\t' && i < len(shown) {
				shown[i] = '→'
			}
		}
	}
	number := fmt.Sprint(at.Line)
	out := fmt.Sprintf(" %s | %s\n", number, string(shown))
	if at.Column > 0 {
		out += fmt.Sprintf(" %s | %s^\n", strings.Repeat(" ", len(number)), strings.Repeat(" ", column-from))
	}
	return out
}
