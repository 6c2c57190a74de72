package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/webhook"
)

func noCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("no certificate in this test")
}

func newServer(t testing.TB, change func(*webhook.Options)) *webhook.Server {
	t.Helper()
	names, err := ids.Load("", "")
	if err != nil {
		t.Fatal(err)
	}
	o := webhook.Options{
		GetCertificate: noCertificate,
		Known:          review.Known{IDs: names, Tolerations: []corev1.Toleration{}},
		Report:         func(err error) { t.Error(err) },
	}
	if change != nil {
		change(&o)
	}
	s, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var resources = map[string]string{
	"NodeFeature": "nodefeatures", "NodeFeatureRule": "nodefeaturerules", "NodeFeatureGroup": "nodefeaturegroups",
	"NodeFeatureRuleTemplate": "nodefeatureruletemplates", "NodeFeatureRequest": "nodefeaturerequests",
	"NodeFeatureSchedulingPolicy": "nodefeatureschedulingpolicies", "NodeBaseline": "nodebaselines",
}

// request returns the request that the API server sends when an object is created.
func request(t testing.TB, manifest []byte) *admissionv1.AdmissionRequest {
	t.Helper()
	raw, err := yaml.YAMLToJSON(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &meta); err != nil {
		t.Fatal(err)
	}
	group, version, _ := strings.Cut(meta.APIVersion, "/")
	resource, ok := resources[meta.Kind]
	if !ok {
		t.Fatalf("kind %q", meta.Kind)
	}
	return &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Name: meta.Name, Namespace: meta.Namespace,
		Kind:     metav1.GroupVersionKind{Group: group, Version: version, Kind: meta.Kind},
		Resource: metav1.GroupVersionResource{Group: group, Version: version, Resource: resource},
		Object:   runtime.RawExtension{Raw: raw},
	}
}

// Real-world rules are accepted without warnings.
func TestGoodRulesDrawNoWarning(t *testing.T) {
	s := newServer(t, nil)
	for _, file := range list(t, "testdata/good/*.yaml") {
		t.Run(name(file), func(t *testing.T) {
			got := s.Review(context.Background(), request(t, read(t, file)))
			if !got.Allowed {
				t.Errorf("refused: %s", got.Result.Message)
			}
			for _, w := range got.Warnings {
				t.Errorf("warned: %s", w)
			}
		})
	}
}

// TestWrongObjects reviews invalid objects. Comments at the top of each list strings that the response must contain: "# refused:
// TEXT" or "# warned: TEXT", one per line.
func TestWrongObjects(t *testing.T) {
	s := newServer(t, nil)
	files := list(t, "testdata/wrong/*.yaml")
	if len(files) < 100 {
		t.Errorf("only %d cases", len(files))
	}
	for _, file := range files {
		t.Run(name(file), func(t *testing.T) {
			manifest := read(t, file)
			got := s.Review(context.Background(), request(t, manifest))
			answer, verdict := strings.Join(got.Warnings, "\n"), "warned"
			if !got.Allowed {
				answer, verdict = got.Result.Message, "refused"
				if got.Result.Details == nil {
					t.Fatalf("the review failed: %s", answer)
				}
				for _, c := range got.Result.Details.Causes {
					if c.Field == "" || c.Message == "" {
						t.Errorf("a cause without a field or a message: %+v", c)
					}
				}
			}
			if n := len([]rune(strings.Join(got.Warnings, ""))); n > 3<<10 {
				t.Errorf("warnings of %d characters, which the API server may cut: %s", n, answer)
			}
			wants := 0
			for _, line := range strings.Split(string(manifest), "\n") {
				want, ok := strings.CutPrefix(line, "# ")
				if !ok {
					break
				}
				wants++
				kind, text, _ := strings.Cut(want, ": ")
				if kind != verdict || !strings.Contains(answer, text) {
					t.Errorf("want %s with %q, is %s with\n%s", kind, text, verdict, answer)
				}
			}
			if wants == 0 {
				t.Errorf("the case does not say what it wants; the answer is %s with\n%s", verdict, answer)
			}
		})
	}
}

func list(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files, %v", pattern, err)
	}
	return files
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func name(file string) string { return strings.TrimSuffix(filepath.Base(file), ".yaml") }
