package publish

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const exampleKubeconfig = `
apiVersion: v1
kind: Config
current-context: b
contexts:
- {name: a, context: {cluster: ca, user: ua}}
- {name: b, context: {cluster: cb, user: ub}}
clusters:
- {name: ca, cluster: {server: "https://a"}}
- {name: cb, cluster: {server: "https://b:6443", certificate-authority: ca.crt, tls-server-name: kubernetes}}
users:
- {name: ua, user: {token: wrong}}
- {name: ub, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5, tokenFile: token}}
`

func TestFromKubeconfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", "ca")
	cases := map[string]struct {
		text string
		want *Config
		err  string
	}{
		"CurrentContext": {exampleKubeconfig, &Config{
			Server: "https://b:6443", CA: []byte("ca"), ServerName: "kubernetes",
			Cert: []byte("cert"), Key: []byte("key"), TokenFile: filepath.Join(dir, "token"),
		}, ""},
		"NoContext":  {"current-context: x", nil, `current-context "x" has no cluster`},
		"Plugin":     {strings.Replace(exampleKubeconfig, "tokenFile: token", "exec: {command: aws}", 1), nil, "uses an exec plugin"},
		"BadBase64":  {strings.Replace(exampleKubeconfig, "Y2VydA==", "A", 1), nil, "illegal base64"},
		"CAMissing":  {strings.Replace(exampleKubeconfig, "ca.crt", "none.crt", 1), nil, "none.crt"},
		"NotYAML":    {"{", nil, "yaml"},
		"WrongShape": {"clusters: 5", nil, "cannot unmarshal"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FromKubeconfig(write("config", tc.text))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one with %q", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestClientSendsARenewedTokenAfterItWasRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	set := func(text string) {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"metadata":{"uid":"x"}}`))
	}))
	defer s.Close()
	c, err := NewClient(&Config{Server: s.URL, TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	set("old")
	if _, err := c.NodeUID(t.Context(), "n1"); err == nil {
		t.Error("no error with an old token")
	}
	set("new")
	if _, err := c.NodeUID(t.Context(), "n1"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"Bearer old", "Bearer new"}, sent); diff != "" {
		t.Error(diff)
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(exampleKubeconfig))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseKubeconfig(data, t.TempDir()); err == nil && c.Server == "" {
			t.Error("accepted without a server")
		}
	})
}
