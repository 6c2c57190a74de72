package template

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
)

// clusterDeps simulates a cluster with one template, and a compiler that rejects labels named bad.
func clusterDeps() Deps {
	return Deps{
		Template: func(_ context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
			if name != "common" {
				return nil, nil
			}
			phase := nfdv1alpha1.PhaseMain
			return &assayv1alpha1.NodeFeatureRuleTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: nfdv1alpha1.NodeFeatureRuleSpec{
					Phase: &phase,
					Rules: []nfdv1alpha1.Rule{{Name: "common", Labels: map[string]string{"example.com/common": "true"}}},
				},
			}, nil
		},
	}
}

func TestMain(m *testing.M) {
	run := func(deps Deps) func() {
		return func() {
			cmd := NewCommandWith(deps)
			cmd.SilenceErrors = true
			if err := cmd.Execute(); err != nil {
				fmt.Fprintln(os.Stderr, "error:", err)
				os.Exit(1)
			}
		}
	}
	testscript.Main(m, map[string]func(){"template": run(clusterDeps()), "offline-template": run(Deps{})})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}

// run executes the command and returns its output.
func run(t *testing.T, deps Deps, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommandWith(deps)
	cmd.SilenceErrors = true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		from locator
		text string
		want string
		err  string
	}{
		"beside":                      {"/a/b.yaml", "c.yaml", "/a/c.yaml", ""},
		"below":                       {"/a/b.yaml", "./d/c.yaml", "/a/d/c.yaml", ""},
		"absolute":                    {"/a/b.yaml", "/c.yaml", "/c.yaml", ""},
		"file URL":                    {"/a/b.yaml", "file:///c%20d.yaml", "/c d.yaml", ""},
		"https":                       {"/a/b.yaml", "https://example.com/c.yaml", "https://example.com/c.yaml", ""},
		"beside https":                {"https://example.com/a/b.yaml?ref=1", "c.yaml", "https://example.com/a/c.yaml", ""},
		"https at the root":           {"https://example.com", "c.yaml", "https://example.com/c.yaml", ""},
		"cluster":                     {"/a/b.yaml", "cluster:c", "cluster:c", ""},
		"cluster from cluster":        {"cluster:b", "cluster:c", "cluster:c", ""},
		"cluster from https":          {"https://example.com/b", "cluster:c", "cluster:c", ""},
		"climbing":                    {"/a/b.yaml", "../c.yaml", "", ".. is not allowed"},
		"climbing inside":             {"/a/b.yaml", "d/../../c.yaml", "", ".. is not allowed"},
		"climbing in disguise":        {"https://example.com/a/b", "%2e%2e/c", "", ".. is not allowed"},
		"climbing https":              {"/a/b.yaml", "https://example.com/../c", "", ".. is not allowed"},
		"climbing file URL":           {"/a/b.yaml", "file:///a/../c", "", ".. is not allowed"},
		"backslash":                   {"/a/b.yaml", `..\c.yaml`, "", "backslashes"},
		"backslash in disguise":       {"/a/b.yaml", `%5cc.yaml`, "", "backslashes"},
		"plain http":                  {"/a/b.yaml", "http://example.com/c", "", "use https"},
		"another scheme":              {"/a/b.yaml", "template:c", "", "unknown scheme"},
		"https without host":          {"/a/b.yaml", "https:///c", "", "want https://HOST/PATH"},
		"file on a host":              {"/a/b.yaml", "file://host/c", "", "want file:///PATH"},
		"a file from https":           {"https://example.com/b", "/etc/passwd", "", "cannot name files of this one"},
		"a file URL from https":       {"https://example.com/b", "file:///etc/passwd", "", "cannot name files of this one"},
		"a file from the cluster":     {"cluster:b", "c.yaml", "", "no files beside it"},
		"standard input":              {"/a/b.yaml", "-", "", "standard input"},
		"a bad name":                  {"/a/b.yaml", "cluster:C_d", "", "lowercase RFC 1123"},
		"empty":                       {"/a/b.yaml", "", "", "empty"},
		"a line break":                {"/a/b.yaml", "a\nb", "", "control characters"},
		"https to its own upper case": {"/a/b.yaml", "HTTPS://example.com/c", "https://example.com/c", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.from.resolve(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s, error %v, want %q in it", got, err, tt.err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestFetch(t *testing.T) {
	insecure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer insecure.Close()
	mux := http.NewServeMux()
	serve := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	serve("/d/main.yaml", "{basedOn: base.yaml, rules: [{name: m, labels: {m: '1'}}]}")
	serve("/d/base.yaml", "{rules: [{name: b, labels: {b: '1'}}]}")
	serve("/d/thief.yaml", "{basedOn: /etc/hostname}")
	serve("/d/self.yaml", "{basedOn: self.yaml}")
	mux.HandleFunc("/d/large.yaml", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "#", strings.Repeat(" ", compose.MaxText))
	})
	mux.Handle("/d/moved.yaml", http.RedirectHandler("/d/base.yaml", http.StatusFound))
	mux.Handle("/d/downgraded.yaml", http.RedirectHandler(insecure.URL, http.StatusFound))
	mux.Handle("/d/endless.yaml", http.RedirectHandler("/d/endless.yaml", http.StatusFound))
	mux.HandleFunc("/d/broken.yaml", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // one of the clients does not trust the certificate
	server.StartTLS()
	defer server.Close()
	trusting := Deps{HTTP: server.Client()}

	base, err := run(t, trusting, "", "digest", server.URL+"/d/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pinned := func(digest string) string {
		return fmt.Sprintf("{basedOn: [{url: %q, digest: %q}], rules: [{name: m}]}", server.URL+"/d/base.yaml", digest)
	}
	tests := map[string]struct {
		deps  Deps
		stdin string
		args  []string
		want  string
		err   string
	}{
		"bases beside it":      {trusting, "", []string{"copy", "--embed", server.URL + "/d/main.yaml"}, "{name: b,", ""},
		"a redirect":           {trusting, "", []string{"copy", server.URL + "/d/moved.yaml"}, "name: b", ""},
		"a digest that holds":  {trusting, pinned(strings.TrimSpace(base)), []string{"copy", "--embed", "-"}, "name: b", ""},
		"a digest that fails":  {trusting, pinned("sha256:0"), []string{"copy", "--embed", "-"}, "", "has digest sha256:"},
		"a redirect to http":   {trusting, "", []string{"copy", server.URL + "/d/downgraded.yaml"}, "", "not https"},
		"an endless redirect":  {trusting, "", []string{"copy", server.URL + "/d/endless.yaml"}, "", "redirected more than"},
		"a file of this host":  {trusting, "", []string{"copy", "--embed", server.URL + "/d/thief.yaml"}, "", "cannot name files"},
		"itself":               {trusting, "", []string{"copy", "--embed", server.URL + "/d/self.yaml"}, "", "cycle: https://"},
		"too large":            {trusting, "", []string{"copy", server.URL + "/d/large.yaml"}, "", "larger than 4 MiB"},
		"missing":              {trusting, "", []string{"validate", server.URL + "/d/none.yaml"}, "none.yaml not found", "not valid"},
		"a server in trouble":  {trusting, "", []string{"copy", server.URL + "/d/broken.yaml"}, "", "502"},
		"an unknown authority": {Deps{}, "", []string{"copy", server.URL + "/d/base.yaml"}, "", "certificate"},
		"plain http":           {trusting, "", []string{"copy", insecure.URL}, "", "use https"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tt.deps, tt.stdin, tt.args...)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q in it", err, tt.err)
			}
			if !strings.Contains(out, tt.want) {
				t.Errorf("output %q, want %q in it", out, tt.want)
			}
		})
	}
}

func TestCopyRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{dir: "not a regular file", large: "larger than 4 MiB", "/dev/null": "not a regular file"} {
		for _, mode := range []string{"--verbatim", "--embed"} {
			if _, err := run(t, Deps{}, "", "copy", mode, name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: error %v, want %q in it", mode, name, err, want)
			}
		}
	}
}

// Copying must update locators in every notation, and change nothing else.
func TestCopyChangesNothingElse(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"plain":             {"basedOn: b.yaml # c\n", "basedOn: /d/b.yaml # c\n"},
		"double quotes":     {"basedOn: \"b.yaml\"   # c\n\n\nrules:   []\n", "basedOn: /d/b.yaml   # c\n\n\nrules:   []\n"},
		"escapes":           {`basedOn: "b\u002eyaml"` + "\n", "basedOn: /d/b.yaml\n"},
		"single quotes":     {"basedOn: 'it''s.yaml'\n", "basedOn: \"/d/it's.yaml\"\n"},
		"a list":            {"basedOn:\n-   b.yaml\n-   /c.yaml\n- cluster:x\n", "basedOn:\n-   /d/b.yaml\n-   /c.yaml\n- cluster:x\n"},
		"a flow list":       {"basedOn: [ b.yaml,c.yaml ]\n", "basedOn: [ /d/b.yaml,/d/c.yaml ]\n"},
		"objects":           {"basedOn:\n- {digest: 'sha256:1', file: b.yaml}\n- name: n\n", "basedOn:\n- {digest: 'sha256:1', file: /d/b.yaml}\n- name: n\n"},
		"an anchor":         {"basedOn: [&x b.yaml, *x]\n", "basedOn: [&x /d/b.yaml, *x]\n"},
		"a tag":             {"basedOn: !!str b.yaml\n", "basedOn: !!str /d/b.yaml\n"},
		"wide characters":   {"{description: äöü😀, basedOn: b.yaml}\n", "{description: äöü😀, basedOn: /d/b.yaml}\n"},
		"carriage returns":  {"basedOn: b.yaml\r\nphase: main\r\n", "basedOn: /d/b.yaml\r\nphase: main\r\n"},
		"a byte order mark": {"\xef\xbb\xbfbasedOn: b.yaml\n", "\xef\xbb\xbfbasedOn: /d/b.yaml\n"},
		"template files":    {"rules:\n- name: x\n  labelsTemplateFrom: {file: t.tmpl}\n", "rules:\n- name: x\n  labelsTemplateFrom: {file: /d/t.tmpl}\n"},
		"nothing to do":     {"# only\npriority:   1\n", "# only\npriority:   1\n"},
		"a block scalar":    {"basedOn: >-\n  b.yaml\n", "basedOn: >-\n  /d/b.yaml\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			load := newLoader(t.Context(), Deps{}, nil)
			doc, err := load.parse("/d/main.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := absolute(load, "/d/main.yaml", doc, []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
