package lint

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/settings"
	"github.com/assay-project/assay/settings/settingstest"
)

// installation serves a Deployment of each component, which has the arguments and mounts the configuration file, and empty lists. It returns
// its URL.
func installation(t *testing.T, file string, args ...string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/deployments"):
			_, component, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "component=")
			var d appsv1.Deployment
			d.Namespace, d.Name = "ns", component
			d.Spec.Template.Spec = corev1.PodSpec{
				Containers: []corev1.Container{{Name: "sidecar", Args: []string{"other", "--enable-taints=maybe"}}, {
					Name: component, Args: append([]string{component, "-port=8080", "--unknown"}, args...),
				}},
				Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "assay"}},
				}}},
			}
			answer = appsv1.DeploymentList{Items: []appsv1.Deployment{d}}
		case strings.HasSuffix(r.URL.Path, "/namespaces/ns/configmaps/assay"):
			answer = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "assay"}, Data: map[string]string{"nfd-master.conf": file}}
		default:
			answer = metav1.List{}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// connect gives flags the address of an API server.
func connect(t *testing.T, f *cluster.Flags, url string) *cluster.Flags {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(flags)
	if err := flags.Parse([]string{"--server=" + url}); err != nil {
		t.Fatal(err)
	}
	return f
}

func client(t *testing.T, url string) *cluster.Client {
	t.Helper()
	c, err := connect(t, &cluster.Flags{}, url).Connect()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEachSettingOfAnInstallationIsInForce gives each setting another value in a cluster. The command line must read what the programs
// there read, and evaluate with it.
func TestEachSettingOfAnInstallationIsInForce(t *testing.T) {
	for _, o := range settingstest.Others() {
		t.Run(o.Name, func(t *testing.T) {
			want, f, args := settings.Default(), settings.Flags{}, []string(nil)
			if _, err := want.Read("f", []byte(o.File)); err != nil {
				t.Fatal(err)
			}
			if o.Flag != "" {
				args = []string{o.Flag[1:]} // NFD's form, with one dash
				flags := pflag.NewFlagSet("", pflag.ContinueOnError)
				f.Register(flags, want, func(settings.Setting) bool { return true })
				if err := flags.Parse([]string{o.Flag}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.Change(want); err != nil {
				t.Fatal(err)
			}
			url := installation(t, o.File, args...)
			c := client(t, url)
			for _, component := range []string{"controller", "webhook"} {
				got, err := world.ReadInstalled(t.Context(), c, "", component, "")
				if err != nil || got == nil || !got.Equal(want) {
					t.Fatalf("the settings of the %s are %+v, %v, want %+v", component, got, err, want)
				}
			}
			verb := &world.Options{Notes: t.Output}
			s, known, err := verb.Controller(t.Context(), c, "ns")
			if err != nil || !known {
				t.Fatal(known, err)
			}
			w := world.New(s, "ns")
			w.Installed = true
			if !reflect.DeepEqual(w.Limits, want.Rules()) || !reflect.DeepEqual(w.Policy(), want.Gather("ns")) || w.Withholding() != want.Withholding() {
				t.Errorf("verbs evaluate with %+v, %+v, %+v", w.Limits, w.Policy(), w.Withholding())
			}
			lint, cmd := &options{cluster: true}, &cobra.Command{}
			connect(t, &lint.connect, url)
			cmd.SetContext(t.Context())
			cmd.SetErr(t.Output())
			review, err := lint.known(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(review.Rules, want.Rules()) || review.DefaultTemplate != want.DefaultTemplate || review.Withholding != want.Withholding() {
				t.Errorf("lint reviews with %+v, the template %q, %+v", review.Rules, review.DefaultTemplate, review.Withholding)
			}
		})
	}
}

// TestSettingsThatMayNotBeReadAreNoted: without permission to read the installation, the flags apply, and a note says so.
func TestSettingsThatMayNotBeReadAreNoted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind": "Status", "message": "deployments is forbidden"}`))
	}))
	defer server.Close()
	var notes strings.Builder
	f := &world.Options{Notes: func() io.Writer { return &notes }}
	s, known, err := f.Controller(t.Context(), client(t, server.URL), "ns")
	if err != nil || known || !s.EnableTaints || !strings.Contains(notes.String(), "the settings of the controller are unknown: deployments is forbidden") {
		t.Errorf("known %t, %v, notes %q", known, err, notes.String())
	}
}
