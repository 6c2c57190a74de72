package ui

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-project/assay/cmd/assay/internal/input"
)

// rowsPerPage is the number of rows of a table on one page: a hundred rows with nineteen columns have less than 300 kB.
const rowsPerPage = 100

// maxCell is the number of characters of a cell that a page shows. CSV and JSON have the whole value.
const maxCell = 400

// maxChip is the maximum number of characters of a chip: longer strings are sentences.
const maxChip = 32

// table is a table of a page. Its rows are sorted and shown in pages by parameters of the address, and are available as CSV and JSON.
// It is used by one request.
type table struct {
	// ID is the name of the table in addresses and of its files, Caption its name on the page.
	ID, Caption string
	// Help is a sentence below the caption, Empty a sentence instead of a table without rows.
	Help, Empty string
	Columns     []tableColumn
	// List shows a table with one column as a list of several columns.
	List bool
	// Fixed shows all rows in their order, without links to other orders and files: the page is the answer to a form.
	Fixed bool

	count int
	cell  func(row, column int) cell

	query  url.Values // of the request
	page   string     // the path of the request
	prefix string     // of the parameters
	order  []int      // rows in the order of the page
	sorted int        // the column by which they are sorted; -1: none
	down   bool       // in descending order
	number int        // of the current page, from 1
	shared []*sharedText
}

// columnKind is how the cells of a column are shown.
type columnKind int

const (
	columnText  columnKind = iota
	columnMono             // names and values
	columnState            // a word or number with the reason below, which CSV and JSON have in a column of its own
	columnValue            // values that are numbers, aligned
	columnCount            // numbers with separators
	columnShare            // a percentage with a bar
)

// tableColumn is a column of a table.
type tableColumn struct {
	// Name is the header, the key in JSON, and the name by which addresses sort.
	Name string
	Kind columnKind
	// Title explains the column.
	Title string
}

// Class returns the CSS class of a cell, or of the header for an empty one.
func (c tableColumn) Class(of cell) string {
	class := []string{"", "mono", "state", "mono num", "num", "share"}[c.Kind]
	if of.Long() {
		class += " wrap"
	}
	return strings.TrimSpace(class)
}

// Share reports whether the cells are bars.
func (c tableColumn) Share() bool { return c.Kind == columnShare }

// cell is a cell of a table.
type cell struct {
	// Text is the content, as shown, sorted, and in CSV and JSON.
	Text string
	// Key is compared in place of Text when rows are sorted.
	Key string
	// Link is the address that the text leads to.
	Link string
	// Faint is shown beside the text, and only there.
	Faint string
	// Note are sentences below the text, in lines. CSV and JSON have them after the text, or in a column of its own.
	Note string
	// See are in place of sentences that several rows have and the table says once.
	See []*sharedText
	// At is the time whose age the text is: the script of the pages keeps it current.
	At time.Time
	// Class is good, warn, bad or faint.
	Class string
}

// Whole returns the content with the note.
func (c cell) Whole() string {
	if c.Note == "" {
		return c.Text
	}
	return strings.TrimPrefix(c.Text+": "+c.said(), ": ")
}

// said returns the sentences in one line.
func (c cell) said() string { return strings.ReplaceAll(c.Note, "\n", "; ") }

// Notes returns the sentences.
func (c cell) Notes() []string {
	return strings.FieldsFunc(c.Note, func(r rune) bool { return r == '\n' })
}

// Class returns the CSS class of the header.
func (h head) Class() string {
	if h.Kind == columnValue && !strings.Contains(h.Name, ".") { // not the name of a feature
		return "num"
	}
	return h.tableColumn.Class(cell{})
}

// Style returns the CSS classes of the text: a state is a colored chip, a sentence or a number is not.
func (c cell) Style() string {
	if _, err := strconv.Atoi(c.Text); err != nil && c.Class != "" && c.Class != "faint" && len(c.Text) <= maxChip {
		return "chip " + c.Class
	}
	return c.Class
}

// Long reports whether a cell takes more than one line.
func (c cell) Long() bool { return len(c.Text)+len(c.Faint) > 40 || c.Note != "" }

// columns returns columns of one kind.
func columns(kind columnKind, names ...string) []tableColumn {
	out := make([]tableColumn, len(names))
	for i, name := range names {
		out[i] = tableColumn{Name: name, Kind: kind}
	}
	return out
}

// newTable returns a table of count rows, whose cells are computed when they are needed.
func newTable(id, caption string, columns []tableColumn, count int, of func(row, column int) cell) *table {
	return &table{ID: id, Caption: caption, Columns: columns, count: count, cell: of, sorted: -1, number: 1}
}

// tableOf returns a table of rows.
func tableOf(id, caption string, columns []tableColumn, rows [][]cell) *table {
	return newTable(id, caption, columns, len(rows), func(row, column int) cell { return rows[row][column] })
}

// nodeList returns a table of nodes that is shown as a list.
func nodeList(id, caption string, names []string) *table {
	t := newTable(id, caption, columns(columnText, "node"), len(names), func(row, _ int) cell { return nodeCell(names[row]) })
	t.List = true
	return t
}

// prepare sorts the rows and selects the page that a request asks for. The parameters of the first table of a page are sort and page,
// those of the others have the prefix ID and a dot. An unknown column leaves the rows in their order, and a page number outside of the
// range is clamped.
func (t *table) prepare(r *http.Request, first bool) {
	t.query, t.page = url.Values{}, path.Base(r.URL.Path)
	for name, values := range r.URL.Query() {
		if len(values) > 0 && values[0] != "" && name != "format" && name != "table" {
			t.query.Set(name, values[0])
		}
	}
	if !first {
		t.prefix = t.ID + "."
	}
	if t.Fixed {
		t.query = url.Values{}
	}
	t.order = make([]int, t.count)
	for i := range t.order {
		t.order[i] = i
	}
	by, down := strings.CutPrefix(t.query.Get(t.prefix+"sort"), "-")
	t.down = down
	if t.sorted = slices.IndexFunc(t.Columns, func(c tableColumn) bool { return c.Name == by }); t.sorted >= 0 {
		t.sort()
	}
	t.number, _ = strconv.Atoi(t.query.Get(t.prefix + "page"))
	t.number = min(max(t.number, 1), t.Pages())
}

// sort sorts the rows by the column. Rows without a value are last in both orders, and equal rows keep their order.
func (t *table) sort() {
	keys := make([]string, t.count)
	input.Each(t.count, func(i int) { // a cell can need an evaluation of all rules on its node
		c := t.cell(i, t.sorted)
		keys[i] = cmp.Or(c.Key, c.Text)
	})
	slices.SortStableFunc(t.order, func(a, b int) int {
		x, y := keys[a], keys[b]
		if x == "" || y == "" {
			return cmp.Compare(y, x) // the empty one is last
		}
		if t.down {
			x, y = y, x
		}
		return natural(x, y)
	})
}

// natural compares strings so that numbers in them are in the order of their values: node-9 is before node-10, and 6.8 before 6.10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(x):], b[len(y):]
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if d := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); d != 0 {
			return d
		}
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return s
	}
	return s[:end]
}

// Count returns the number of rows on all pages.
func (t *table) Count() int { return t.count }

// Pages returns the number of pages.
func (t *table) Pages() int { return max(1, (t.count+rowsPerPage-1)/rowsPerPage) }

// Number returns the number of the current page, from 1.
func (t *table) Number() int { return t.number }

// Rows returns the cells of the current page.
func (t *table) Rows() [][]cell {
	from := (t.number - 1) * rowsPerPage
	rows := t.order[from:min(t.count, from+rowsPerPage)]
	out := make([][]cell, len(rows))
	for i, row := range rows {
		out[i] = t.row(row)
		for c := range out[i] {
			if n, err := strconv.Atoi(out[i][c].Text); err == nil && t.Columns[c].Kind == columnCount {
				out[i][c].Text = thousands(n)
			}
		}
	}
	t.share(out)
	return out
}

// row returns the cells of a row.
func (t *table) row(i int) []cell {
	out := make([]cell, len(t.Columns))
	for c := range out {
		out[c] = t.cell(i, c)
	}
	return out
}

// address returns the address of the page with changed parameters: pairs of names and values. An empty value removes the parameter.
func (t *table) address(pairs ...string) string {
	query := url.Values{}
	for name, values := range t.query {
		query[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			query.Del(pairs[i])
		} else {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return t.page + "?" + query.Encode()
}

// head is the header of a column.
type head struct {
	tableColumn
	// Link sorts by the column, Sort is the value of aria-sort.
	Link, Sort string
}

// Heads returns the headers. The first click on a number sorts the largest first, that on another value the smallest.
func (t *table) Heads() []head {
	out := make([]head, len(t.Columns))
	for i, c := range t.Columns {
		h := head{tableColumn: c}
		down := c.Kind >= columnValue
		if i == t.sorted {
			h.Sort, down = "ascending", !t.down
			if t.down {
				h.Sort = "descending"
			}
		}
		by := c.Name
		if down {
			by = "-" + by
		}
		h.Link = t.address(t.prefix+"sort", by, t.prefix+"page", "")
		out[i] = h
	}
	return out
}

// Previous returns the address of the page before the current one, or "".
func (t *table) Previous() string { return t.at(t.number - 1) }

// Next returns the address of the page after the current one, or "".
func (t *table) Next() string { return t.at(t.number + 1) }

func (t *table) at(number int) string {
	if number < 1 || number > t.Pages() {
		return ""
	}
	return t.address(t.prefix+"page", strconv.Itoa(number)) + "#" + t.ID
}

// File returns the address of all rows in a format.
func (t *table) File(format string) string {
	return t.address(t.prefix+"page", "", "table", t.ID, "format", format)
}

// formats are the formats of tables and their content types.
var formats = map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}

// tabled is a view with tables.
type tabled interface{ tables() []*table }

// writeTable writes the table that a request names, the first one by default, as CSV or JSON.
func writeTable(w http.ResponseWriter, r *http.Request, list []*table) {
	format, name := r.URL.Query().Get("format"), r.URL.Query().Get("table")
	if formats[format] == "" {
		http.Error(w, fmt.Sprintf("invalid format %q: use csv or json", format), http.StatusBadRequest)
		return
	}
	var names []string
	for _, t := range list {
		if names = append(names, t.ID); t.ID == name || name == "" {
			var b bytes.Buffer
			write := t.csv
			if format == "json" {
				write = t.json
			}
			if err := write(&b); err != nil {
				http.Error(w, "cannot write the table: "+err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", formats[format])
			if format == "csv" {
				w.Header().Set("Content-Disposition", `attachment; filename="`+t.ID+`.csv"`)
			}
			_, _ = w.Write(b.Bytes())
			return
		}
	}
	http.Error(w, fmt.Sprintf("table %q not found: this page has %s", name, strings.Join(names, ", ")), http.StatusNotFound)
}

// reasonSuffix ends the names of the columns with reasons in CSV and JSON.
const reasonSuffix = ".reason"

// names returns the names of the columns in CSV and JSON.
func (t *table) names() (out []string) {
	for _, c := range t.Columns {
		if out = append(out, c.Name); c.Kind == columnState {
			out = append(out, c.Name+reasonSuffix)
		}
	}
	return out
}

// values returns a row in CSV and JSON.
func (t *table) values(row int) (out []string) {
	for i, c := range t.row(row) {
		if t.Columns[i].Kind == columnState {
			out = append(out, c.Text, c.said())
		} else {
			out = append(out, c.Whole())
		}
	}
	return out
}

// csv writes all rows with a header.
func (t *table) csv(b *bytes.Buffer) error {
	w := csv.NewWriter(b)
	write := func(record []string) {
		for i := range record {
			record[i] = inert(record[i])
		}
		_ = w.Write(record) // Flush reports errors
	}
	write(t.names())
	for _, row := range t.order {
		write(t.values(row))
	}
	w.Flush()
	return w.Error()
}

// inert returns a value so that a spreadsheet does not evaluate it: values come from nodes, and a cell that begins with an equal sign is a
// formula.
func inert(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}

// json writes all rows as a list of objects, with the columns in their order. Numbers in columns of numbers are numbers.
func (t *table) json(b *bytes.Buffer) error {
	var names []string
	var numbers []bool
	for _, c := range t.Columns {
		name, err := json.Marshal(c.Name)
		if err != nil {
			return err
		}
		names, numbers = append(names, string(name)), append(numbers, c.Kind >= columnValue)
		if c.Kind == columnState {
			names, numbers = append(names, strings.TrimSuffix(string(name), `"`)+reasonSuffix+`"`), append(numbers, false)
		}
	}
	b.WriteString("[")
	for n, row := range t.order {
		if n > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n{")
		for i, value := range t.values(row) {
			text, err := json.Marshal(value)
			if err != nil {
				return err
			}
			if n, err := strconv.Atoi(value); err == nil && numbers[i] && strconv.Itoa(n) == value {
				text = []byte(value)
			}
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(names[i] + ": ")
			b.Write(text)
		}
		b.WriteString("}")
	}
	b.WriteString("\n]\n")
	return nil
}
