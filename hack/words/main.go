// Command words reports phrases that docs/style.md replaces by plainer ones, in lines that a change adds.
//
//	go run ./hack/words [-base REVISION]     lines of Go, Markdown and YAML added since the revision
//	go run ./hack/words -all                 every line
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os/exec"
	"regexp"
	"strings"
)

//go:embed words.tsv
var list string

// word is a phrase, what to write instead, and longer text in which the phrase is fine.
type word struct {
	find, except *regexp.Regexp
	instead      string
	code         bool // it is about a whole line of Go, not about the sentences in it
}

func main() {
	log.SetFlags(0)
	base := flag.String("base", "", "revision that lines must be newer than; default: where the branch left main, on main the commit before")
	all := flag.Bool("all", false, "check every line")
	flag.Parse()
	from := *base
	if *all {
		from = emptyTree
	} else if from == "" {
		from = before()
	}
	found := 0
	words := parse(list)
	for _, l := range added(git("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", from, "--",
		"*.go", "*.md", "*.yaml", ":!docs/style.md", ":!hack/words", ":!*zz_generated*", ":!library/ids")) {
		for _, w := range words {
			text := l.text
			if w.except != nil {
				text = w.except.ReplaceAllString(text, "")
			}
			if strings.HasSuffix(l.file, ".go") && !w.code {
				text = strings.Join(prose.FindAllString(text, -1), "\n")
			}
			if hit := w.find.FindString(text); hit != "" {
				fmt.Printf("%s:%d: %q: write %s\n", l.file, l.number, strings.TrimSpace(hit), w.instead)
				found++
			}
		}
	}
	if found > 0 {
		log.Fatalf("%d phrases that docs/style.md replaces", found)
	}
}

// prose matches the sentences in a line of Go: its strings and its comment. Names are not sentences.
var prose = regexp.MustCompile(`"(\\.|[^"\\])*"|` + "`[^`]*`?" + `|//.*`)

// emptyTree is the hash of a tree without files, which git knows in every repository.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// before returns the revision that the change is compared with.
func before() string {
	head := git("rev-parse", "HEAD")
	if base, err := exec.CommandContext(context.Background(), "git", "merge-base", "HEAD", "main").Output(); err == nil && string(base) != head {
		return strings.TrimSpace(string(base))
	}
	if exec.CommandContext(context.Background(), "git", "rev-parse", "--verify", "--quiet", "HEAD^").Run() != nil {
		return "HEAD" // the history is not here
	}
	return "HEAD^"
}

func git(args ...string) string {
	out, err := exec.CommandContext(context.Background(), "git", args...).Output()
	if err != nil {
		log.Fatalf("git %s: %v", args[0], err)
	}
	return string(out)
}

func parse(list string) []word {
	var out []word
	for _, row := range strings.Split(list, "\n") {
		columns := strings.Split(row, "\t")
		if strings.HasPrefix(row, "#") || len(columns) < 2 {
			continue
		}
		w := word{find: regexp.MustCompile("(?i)" + columns[0]), instead: columns[1], code: strings.Contains(columns[0], `\(`) || columns[0][0] == '^'}
		if len(columns) > 2 {
			w.except = regexp.MustCompile("(?i)" + columns[2])
		}
		out = append(out, w)
	}
	return out
}

type line struct {
	file   string
	number int
	text   string
}

// added returns the lines that a diff without context adds.
func added(diff string) []line {
	var out []line
	var file string
	number := 0
	scanner := bufio.NewScanner(bytes.NewReader([]byte(diff)))
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		text := scanner.Text()
		switch {
		case strings.HasPrefix(text, "+++ "):
			file = text[len("+++ "):]
		case strings.HasPrefix(text, "@@ "):
			if _, after, ok := strings.Cut(text, " +"); ok {
				_, _ = fmt.Sscan(strings.FieldsFunc(after, func(r rune) bool { return r == ',' || r == ' ' })[0], &number)
			}
		case strings.HasPrefix(text, "+"):
			out = append(out, line{file, number, text[1:]})
			number++
		}
	}
	return out
}
