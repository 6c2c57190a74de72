package tmpl

import "strings"

// tooDeep returns the position where blocks or parentheses exceed MaxDepth. It runs before the parser, which is recursive and would
// use megabytes of stack for a few kilobytes of parentheses. It does not report syntax errors.
func tooDeep(source string) (at int, deep bool) {
	var few [8]int
	blocks := few[:0] // number of levels of each open block; an "else if" adds one
	depth := 0
	for pos := 0; ; {
		open := strings.Index(source[pos:], "{{")
		if open < 0 {
			return 0, false
		}
		start := pos + open + 2
		words, end, parens := scanAction(source, start)
		if parens > MaxDepth {
			return start, true
		}
		switch {
		case words[0] == "if", words[0] == "range", words[0] == "with", words[0] == "define", words[0] == "block":
			blocks = append(blocks, 1)
			depth++
		case words[0] == "else" && words[1] != "" && len(blocks) > 0:
			blocks[len(blocks)-1]++
			depth++
		case words[0] == "end" && len(blocks) > 0:
			depth -= blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
		}
		if depth > MaxDepth {
			return start, true
		}
		pos = end
	}
}

// scanAction scans one action after its opening braces. It returns the first two words, the end, and the maximum depth of
// parentheses.
func scanAction(source string, start int) (words [2]string, end, parens int) {
	depth, n := 0, 0
	i := start
	if strings.HasPrefix(source[i:], "- ") {
		i++
	}
	if rest := strings.TrimLeft(source[i:], " \t\r\n"); strings.HasPrefix(rest, "/*") {
		if stop := strings.Index(rest, "*/"); stop >= 0 {
			return words, len(source) - len(rest) + stop + 2, 0
		}
		return words, len(source), 0
	}
	for i < len(source) {
		c := source[i]
		switch {
		case strings.HasPrefix(source[i:], "}}"):
			return words, i + 2, parens
		case c == '(':
			depth++
			parens = max(parens, depth)
		case c == ')':
			depth--
		case c == '"' || c == '\'' || c == '`':
			i = skipQuoted(source, i)
			continue
		case isLetter(c) && n < len(words):
			word := i
			for i < len(source) && isLetter(source[i]) {
				i++
			}
			words[n] = source[word:i]
			n++
			continue
		}
		i++
	}
	return words, i, parens
}

// skipQuoted returns the position after the quoted text that begins at i.
func skipQuoted(source string, i int) int {
	quote := source[i]
	for i++; i < len(source); i++ {
		switch {
		case source[i] == '\\' && quote != '`':
			i++
		case source[i] == quote:
			return i + 1
		}
	}
	return len(source)
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
