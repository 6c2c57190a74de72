package ui

import (
	"slices"
	"strconv"
	"strings"
)

// sharedText is a sentence that several rows of a page have. It is shown once, and the rows refer to it.
type sharedText struct {
	ID, Word, Text string
	// Rows is the number of rows.
	Rows int
}

const (
	// sharedRows is the number of rows from which on a sentence is shown once, if that saves sharedSaving characters.
	sharedRows, sharedSaving = 3, 200
	// sharedLength is the number of characters from which on a string is a sentence.
	sharedLength = 20
)

// Shared returns the sentences that several of the Rows have.
func (t *table) Shared() []*sharedText { return t.shared }

// sentences returns the sentences of a cell: shorter ones are states and values.
func (c cell) sentences() (out []string) {
	if c.Link == "" && strings.Contains(c.Text, " ") {
		out = append(out, c.Text)
	}
	return slices.DeleteFunc(append(out, c.Notes()...), func(s string) bool { return len(s) < sharedLength })
}

// share replaces sentences that several rows have.
func (t *table) share(rows [][]cell) {
	t.shared = nil
	counts, known := map[string]int{}, map[string]*sharedText{}
	each := func(do func(c *cell, sentence string)) {
		for _, row := range rows {
			for i := range row {
				if t.sentences(i) {
					for _, s := range row[i].sentences() {
						do(&row[i], s)
					}
				}
			}
		}
	}
	each(func(_ *cell, s string) { counts[s]++ })
	each(func(c *cell, s string) {
		if n := counts[s]; n < sharedRows || n*len(s) < sharedSaving {
			return
		}
		if known[s] == nil {
			n := strconv.Itoa(len(t.shared) + 1)
			known[s] = &sharedText{t.ID + "-" + n, "note " + n, s, counts[s]}
			t.shared = append(t.shared, known[s])
		}
		c.See = append(c.See, known[s])
		if c.Text == s {
			c.Text = ""
		}
		c.Note = strings.Join(slices.DeleteFunc(c.Notes(), func(note string) bool { return note == s }), "\n")
	})
}

// sentences reports whether a column has sentences: other long strings are names and values.
func (t *table) sentences(column int) bool {
	kind := t.Columns[column].Kind
	return column > 0 && !t.List && (kind == columnText || kind == columnState)
}
