package ui

import (
	"bytes"
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
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
)

//go:embed templates static
var files embed.FS

// page holds the data of the layout around each view.
type page struct {
	Title, Current, Where, Back string
	At                          time.Time
	Notes                       []string
	// CanReload is set if the source can be read again, Reading is the duration of a running reload, Failed the error of the last
	// one.
	CanReload bool
	Reading   string
	Failed    string
	View      any
}

const (
	// maxText is the maximum number of characters of one value on a page.
	maxText = 2000
	// longText is the number of characters above which a value may not fit into its column and gets a tooltip.
	longText = 12
)

var functions = template.FuncMap{
	"thousands": thousands,
	"text":      text,
	"long":      func(s string) bool { return utf8.RuneCountInString(s) > longText },
	"join":      strings.Join,
	"add":       func(a, b int) int { return a + b },
	"plural":    plural,
	"percent":   percent,
}

var views = func() map[string]*template.Template {
	out := map[string]*template.Template{}
	for _, name := range []string{"fleet", "node", "rules", "rule", "playground", "error"} {
		t := template.New("layout.html").Funcs(functions)
		out[name] = template.Must(t.ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
	}
	return out
}()

// text returns a value, shortened for a page.
func text(s string) string {
	if utf8.RuneCountInString(s) <= maxText {
		return s
	}
	return string([]rune(s)[:maxText]) + "… (" + thousands(utf8.RuneCountInString(s)) + " characters)"
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

// show renders a view in the layout.
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, view, title string, v any) {
	d, since, failed := s.current()
	p := &page{Title: title, Current: view, Where: d.Where, At: d.At, Notes: d.Notes, CanReload: s.source != nil, View: v}
	p.Back = strings.TrimPrefix(path.Base(r.URL.Path), "/")
	if p.Back == s.token {
		p.Back = "./"
	} else if r.Method == http.MethodGet && r.URL.RawQuery != "" {
		p.Back += "?" + r.URL.RawQuery
	}
	if !since.IsZero() {
		p.Reading = time.Since(since).Round(time.Second).String()
	}
	if failed != nil {
		p.Failed = failed.Error()
	}
	var b bytes.Buffer
	if err := views[view].Execute(&b, p); err != nil {
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
	return err == nil && u.Scheme == "" && u.Host == "" && slices.Contains([]string{"fleet", "node", "rules", "rule", "playground"}, u.Path)
}

// home shows the list of nodes, or the node if there is only one.
func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
	if len(d.Nodes) == 1 {
		http.Redirect(w, r, "node?name="+url.QueryEscape(d.Nodes[0].Input.Node.Name), http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, "fleet", http.StatusSeeOther)
}

func (s *Server) fleet(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
	q := r.URL.Query()
	p := newFleetPage(d, fleetQuery{q.Get("filter"), q.Get("columns"), q.Get("by"), number(q, "page")})
	status := http.StatusOK
	if p.FilterError != "" {
		status = http.StatusBadRequest
	}
	s.show(w, r, status, "fleet", "Fleet", p)
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
	name := r.URL.Query().Get("name")
	if p := newNodePage(d, name, r.URL.Query().Get("q")); p != nil {
		s.show(w, r, http.StatusOK, "node", name, p)
		return
	}
	s.missing(w, r, "There is no node "+name+" here.", "fleet?by=nodes", "All nodes")
}

func (s *Server) rules(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
	s.show(w, r, http.StatusOK, "rules", "Rules", newRulesPage(d))
}

func (s *Server) rule(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
	q := r.URL.Query()
	if p := newRulePage(d, q.Get("name"), number(q, "matched"), number(q, "unmatched")); p != nil {
		s.show(w, r, http.StatusOK, "rule", p.Name, p)
		return
	}
	s.missing(w, r, "There is no rule "+q.Get("name")+" here.", "rules", "All rules")
}

func (s *Server) playground(w http.ResponseWriter, r *http.Request) {
	d, _, _ := s.current()
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

func (s *Server) missing(w http.ResponseWriter, r *http.Request, message, link, linkText string) {
	s.show(w, r, http.StatusNotFound, "error", "Not found", &errorPage{message, link, linkText})
}

func number(q url.Values, name string) int {
	n, _ := strconv.Atoi(q.Get(name))
	return n
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
