package ui

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
)

//go:embed templates static
var files embed.FS

// page holds the data of the layout around each view.
type page struct {
	Title, Current, Where, Back string
	Views                       []navigationItem
	// Read is the time since the source was read, Now the moment from which relative times count.
	Read cell
	Now  time.Time
	// Unknown are sentences about what could not be read, Notes about what else is missing.
	Unknown []string
	Notes   []Note
	// CanReload is set if the source can be read again, Reading is the duration of a running reload, Failed the error of the last
	// one.
	CanReload bool
	Reading   string
	Failed    string
	// Every is the number of seconds between refreshes.
	Every int
	View  any
}

const (
	// refreshInterval is the time between refreshes of a page.
	refreshInterval = 30 * time.Second
	// refreshShare is the number of times that a reading fits into the time from one refresh to the next: with 15,000 nodes it takes
	// seconds of the API server.
	refreshShare = 10
)

// maxText is the maximum number of characters of one value on a page.
const maxText = 2000

var functions = template.FuncMap{
	"thousands": thousands,
	"text":      func(s string) string { return shorten(s, maxText) },
	"short":     func(s string) string { return shorten(s, maxCell) },
	"join":      strings.Join,
	"dots":      func(s string) []string { return strings.Split(shorten(s, maxCell), ".") },
	"plural":    plural,
	"filter":    filterLink,
	"stamp":     stamp,
}

// stamp returns a time for the script of the pages.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// navigationItem is a page that every page links to.
type navigationItem struct {
	// Page is its address, Text what the link says.
	Page, Text string
	// Parts are the pages that belong to it.
	Parts []string
}

// Has reports whether a page belongs to the item.
func (n navigationItem) Has(page string) bool {
	return n.Page == page || slices.Contains(n.Parts, page)
}

// firstPage is the page that has all notes.
const firstPage = "overview"

// navigation lists the pages in their order.
var navigation = []navigationItem{
	{firstPage, "Overview", nil},
	{"fleet", "Nodes", []string{"node", "compare"}},
	{"rules", "Rules", []string{"rule"}},
	{"pods", "Pods", []string{"pod"}},
	{"objects", "Objects", []string{"object"}},
	{"playground", "Playground", nil},
}

// views returns the templates of the pages, which other verbs do not need.
var views = sync.OnceValue(func() map[string]*template.Template {
	out := map[string]*template.Template{}
	names := []string{"error"}
	for _, item := range navigation {
		names = append(append(names, item.Page), item.Parts...)
	}
	for _, name := range names {
		t := template.New("layout.html").Funcs(functions)
		out[name] = template.Must(t.ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
	}
	return out
})

// shorten returns a value with at most the given number of characters, and says how many it has.
func shorten(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "… (" + thousands(utf8.RuneCountInString(s)) + " characters)"
}

// filterLink returns the address of the nodes that a term selects: words of a filter, the last of which is quoted if needed.
func filterLink(words ...string) string {
	words = slices.Clone(words)
	words[len(words)-1] = quoteWord(words[len(words)-1])
	return nodesLink(strings.Join(words, " "))
}

// nodesLink returns the address of the nodes that a filter selects.
func nodesLink(filter string) string {
	return "fleet?" + url.Values{"by": {"nodes"}, "filter": {filter}}.Encode()
}

// thousands formats a number with separators.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural formats a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// show renders a view in the layout, or one of its tables as a file.
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, view, title string, v any) {
	d, since, took, failed := s.state()
	if t, ok := v.(tabled); ok {
		list := t.tables()
		for i, t := range list {
			t.prepare(r, i == 0)
		}
		if status == http.StatusOK && r.URL.Query().Has("format") {
			writeTable(w, r, list)
			return
		}
	}
	p := &page{
		Title: title, Current: view, Where: d.Where, Read: d.age(d.At), Now: d.now, Unknown: d.Unknown.list(), Notes: d.notes(view, title), CanReload: s.source != nil,
		View: v, Views: navigation,
	}
	if view == "error" {
		p.Current = path.Base(r.URL.Path)
	}
	p.Back = strings.TrimPrefix(path.Base(r.URL.Path), "/")
	if p.Back == s.token {
		p.Back = "./"
	} else if r.Method == http.MethodGet && r.URL.RawQuery != "" {
		p.Back += "?" + r.URL.RawQuery
	}
	if !since.IsZero() {
		p.Reading = time.Since(since).Round(time.Second).String()
	}
	p.Every = int(max(refreshInterval, (refreshShare-1)*took) / time.Second)
	if failed != nil {
		p.Failed = failed.Error()
	}
	var b bytes.Buffer
	if err := views()[view].Execute(&b, p); err != nil {
		http.Error(w, "cannot show the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// isPage reports whether an address is a page of this server, as a relative address.
func isPage(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "" && u.Host == "" &&
		slices.ContainsFunc(navigation, func(n navigationItem) bool { return n.Has(u.Path) })
}

// partHeader is set by the script of the pages when it asks for a part that changes while the user types: what is read from the cluster
// is then left out.
const partHeader = "Assay-Part"

// home shows the first page, or the node if there is only one.
func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	if len(d.Nodes) == 1 {
		http.Redirect(w, r, "node?name="+url.QueryEscape(d.Nodes[0].Input.Node.Name), http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, firstPage, http.StatusSeeOther)
}

func (s *Server) fleet(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	q := r.URL.Query()
	p := newFleetPage(d, fleetQuery{q.Get("filter"), q.Get("columns"), q.Get("by")})
	switch {
	case p.FilterError == "":
		s.show(w, r, http.StatusOK, "fleet", "Nodes", p)
	case q.Has("format"):
		http.Error(w, "the filter is not valid: "+p.FilterError, http.StatusBadRequest)
	default:
		s.show(w, r, http.StatusBadRequest, "fleet", "Nodes", p)
	}
}

// search leads to the node or rule with a name, or to the nodes that a filter selects.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	to := nodesLink(q)
	if d.node(q) != nil {
		to = nodeCell(q).Link
	} else if slices.Contains(d.ruleNames(), q) {
		to = ruleCell(q).Link
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	name := r.URL.Query().Get("name")
	live := make(chan *nodeLive, 1)
	if n := d.node(name); n != nil && r.Header.Get(partHeader) == "" {
		go func() { live <- newNodeLive(r.Context(), d, n) }()
	} else {
		live <- nil
	}
	if p := newNodePage(r.Context(), d, name, r.URL.Query().Get("q")); p != nil {
		p.Live = <-live
		s.show(w, r, http.StatusOK, "node", name, p)
		return
	}
	s.missing(w, r, "Node "+name+" not found"+cmp.Or(didYouMean(name, d.nodeNames()), "."), filterLink(name), "Nodes with this in their name or a label")
}

func (s *Server) rules(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	s.show(w, r, http.StatusOK, "rules", "Rules", newRulesPage(d))
}

func (s *Server) rule(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	name := r.URL.Query().Get("name")
	if p := newRulePage(d, name); p != nil {
		p.Changes = d.ruleChanges(r.Context(), name)
		s.show(w, r, http.StatusOK, "rule", p.Name, p)
		return
	}
	if d.Unknown.Rules != "" {
		s.missing(w, r, "Rule "+name+" is not known.", "rules", "All rules")
		return
	}
	s.missing(w, r, "Rule "+name+" not found"+cmp.Or(didYouMean(name, d.ruleNames()), "."), "rules", "All rules")
}

func (s *Server) playground(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	r.Body = http.MaxBytesReader(w, r.Body, 3*maxRule) // an encoded character takes up to three bytes
	if err := r.ParseForm(); err != nil || len(r.PostForm.Get("text")) > maxRule {
		s.show(w, r, http.StatusRequestEntityTooLarge, "error", "Too large", &errorPage{
			"The text is larger than 1 MiB, which no API server accepts. Split it into several objects.", "playground", "Playground",
		})
		return
	}
	if strings.Count(r.PostForm.Get("text"), "\n") >= maxLines {
		s.show(w, r, http.StatusRequestEntityTooLarge, "error", "Too large", &errorPage{
			fmt.Sprintf("The text has more than %d lines. Split it into several objects.", maxLines), "playground", "Playground",
		})
		return
	}
	rule := r.PostForm.Get("text")
	if r.Method == http.MethodGet {
		rule = sample
		i := slices.IndexFunc(d.Rules, func(rule Rule) bool { return rule.Object.Name == r.Form.Get("rule") })
		if i >= 0 {
			rule = d.Rules[i].Text
		}
	}
	p := newPlaygroundPage(d, rule, firstNode(d, r.Form.Get("node")), r.Form.Get("q"))
	s.show(w, r, http.StatusOK, "playground", "Playground", p)
}

// errorPage shows an error and a link.
type errorPage struct{ Message, Link, LinkText string }

// noPage answers a request with the token for a page that does not exist.
func (s *Server) noPage(w http.ResponseWriter, r *http.Request) {
	s.missing(w, r, "Page "+path.Base(r.URL.Path)+" not found", "./", "First page")
}

func (s *Server) missing(w http.ResponseWriter, r *http.Request, message, link, linkText string) {
	s.show(w, r, http.StatusNotFound, "error", "Not found", &errorPage{message, link, linkText})
}

// contentTypes maps extensions of static files to content types.
var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func static(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "file")
	data, err := fs.ReadFile(files, "static/"+name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	_, _ = w.Write(data)
}
