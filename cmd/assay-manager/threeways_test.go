//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// wordedDifferently lists the objects for which the messages of the API server and lint differ, with the reason. Both must still
// accept or both reject the object.
var wordedDifferently = map[string]string{
	"w09-field-typo":                         "the API server's decoder rejects unknown fields before any webhook; lint proposes the right name",
	"w10-wrong-group":                        "the API server has no such kind and answers 404",
	"w18-matchOn":                            "unknown fields, as w09-field-typo; lint checks the rest as well",
	"w19-affinity-style":                     "the decoder reports the fields of the list as unknown; lint reports the list",
	"w05-value-int":                          "the webhook does not have the text that YAML has changed, and lint does",
	"w07-label-bool":                         "as w05-value-int",
	"w11-namespaced":                         "the API server drops the namespace of a cluster-scoped object",
	"y02-alternatives-without-matchfeatures": "unknown fields, as w09-field-typo; lint says where they belong",
	"y03-rules-in-metadata":                  "as y02-alternatives-without-matchfeatures",
	"y04-outputs-in-spec":                    "as y02-alternatives-without-matchfeatures",
	"y05-matcher-in-policy":                  "as y02-alternatives-without-matchfeatures",
	"y11-selector-plain":                     "as y02-alternatives-without-matchfeatures",
	"y19-octal":                              "as w05-value-int",
	"y22-kind-part":                          "the API server has no such kind and answers 404",
	"y28-group-rules":                        "as y02-alternatives-without-matchfeatures",
	"y01-terms-as-map":                       "the decoder reports the fields of the map as unknown; lint shows the list",
	"w26-tab":                                "the API server's decoder reads no YAML with tabs",
	"w27-dup-key":                            "the API server's decoder rejects a duplicate key before any webhook",
}

// warnedDifferently lists the objects about which the webhook and lint warn differently, with the reason.
var warnedDifferently = map[string]string{
	"duplicate-name-based": "the webhook knows all templates, and lint those among the files",
	"request-grace":        "the webhook knows that the administrator has not set lossTaint",
	"pods-job-typo":        "the webhook knows that nothing enforces the requirements",
	"taint-noexecute":      "the webhook knows the tolerations of the worker, and lint does not",
}

// withoutConditions lists the kinds whose conditions are not compared, with the reason.
var withoutConditions = map[string]string{
	"NodeFeature": "has no conditions",
	"CronJob":     "the review of its pods is in no condition",
	"Deployment":  "the review of its pods is in no condition",
	"Job":         "the review of its pods is in no condition",
	"Pod":         "its review is in no condition",
}

// TestThreeWaysSayTheSame creates invalid objects in an API server with the webhook, lints them, and creates them without the
// webhook to read the conditions that the controller writes. All three must report the same errors and warnings. The cases are in
// testdata/wrong, with one error per file, and the cases of the webhook.
func TestThreeWaysSayTheSame(t *testing.T) {
	c := testkit.Cluster(t)
	files := wrongFiles(t)
	linted := lintFiles(t, wrongDirs)
	k := testkit.Client(t, c.User)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}} // the namespace of some cases
	if err := k.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	api := newCreator(t, c)
	t.Run("Conditions", func(t *testing.T) { // before the webhook is installed, because an API server still calls a webhook for a while after its configuration is deleted
		var stored []string
		for _, file := range files {
			answer := api.create(t, file, "fieldValidation=Strict")
			if !answer.created {
				if linted[file].errors() == nil {
					t.Errorf("%s: the API server rejects it without the webhook and lint accepts it: %s", base(file), answer.Message)
				}
				continue
			}
			t.Cleanup(func() { _ = k.Delete(context.WithoutCancel(t.Context()), answer.object) })
			stored = append(stored, file)
			linted[file].object = answer.object
		}
		t.Logf("%d of %d objects are stored without the webhook", len(stored), len(files))
		startController(t, c, testkit.Namespace(t, k), "-enable-taints", "-feature-gates=FeatureScheduling=true")
		for _, file := range stored {
			conditionsSay(t, k, linted[file])
		}
	})
	withScheduling(t, k)
	startWebhook(t, c, "--node-warnings=false", "--enable-taints", "--scheduling")
	testkit.Eventually(t, "the API server calls the webhook about workloads", func(context.Context) error {
		if api.create(t, "testdata/wrong/pods-cronjob.yaml", "dryRun=All").created {
			return errors.New("it does not yet")
		}
		return nil
	})
	for _, file := range files {
		answerSays(t, api.create(t, file, "fieldValidation=Strict&dryRun=All"), linted[file])
	}
}

// wrongDirs are the directories with invalid objects.
var wrongDirs = []string{"testdata/wrong", "../../webhook/testdata/wrong"}

func wrongFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, dir := range wrongDirs {
		list, err := filepath.Glob(dir + "/*.yaml")
		if err != nil || len(list) < 30 {
			t.Fatalf("%s: %d objects, %v", dir, len(list), err)
		}
		files = append(files, list...)
	}
	return files
}

func base(file string) string { return strings.TrimSuffix(filepath.Base(file), ".yaml") }

// finding is a finding in the output of assay lint -o json.
type finding struct{ File, Severity, Path, Message string }

// lintReport holds the findings of assay lint for a file.
type lintReport struct {
	name     string
	findings []finding
	object   *unstructured.Unstructured // as stored by the API server
}

func (r *lintReport) of(severity string) (out []finding) {
	for _, f := range r.findings {
		if f.Severity == severity && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (r *lintReport) errors() []finding   { return r.of("error") }
func (r *lintReport) warnings() []finding { return r.of("warning") }

// lintFiles builds assay and returns the findings of assay lint for each file in the directories.
func lintFiles(t *testing.T, dirs []string, flags ...string) map[string]*lintReport {
	t.Helper()
	assay := testkit.Program(t, "assay")
	data, err := exec.CommandContext(t.Context(), assay, slices.Concat([]string{"lint", "-o", "json"}, flags, dirs)...).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, data)
	}
	all := struct{ Findings []finding }{}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	out := map[string]*lintReport{}
	for _, dir := range dirs {
		files, _ := filepath.Glob(dir + "/*.yaml")
		for _, file := range files {
			out[file] = &lintReport{name: base(file)}
		}
	}
	for _, f := range all.Findings {
		out[f.File].findings = append(out[f.File].findings, f)
	}
	return out
}

// creator sends files to an API server unchanged, so that its decoder, not the client's, reads them.
type creator struct {
	http *http.Client
	host string
}

func newCreator(t *testing.T, c *cluster.Cluster) *creator {
	t.Helper()
	config := c.User.RESTConfig()
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &creator{h, config.Host}
}

// answer is the response of the API server to a create request.
type answer struct {
	metav1.Status
	created  bool
	object   *unstructured.Unstructured
	warnings []string
}

var (
	versionLine = regexp.MustCompile(`(?m)^apiVersion: (\S+)`)
	kindLine    = regexp.MustCompile(`(?m)^kind: (\S+)`)
	inNamespace = regexp.MustCompile(`\bnamespace: ([a-z0-9-]+)`)
	namespaced  = map[string]bool{
		"NodeFeature": true, "NodeFeatureGroup": true, "NodeFeatureRequest": true,
		"CronJob": true, "Deployment": true, "Job": true, "Pod": true,
	}
)

// create creates the object in a file. Namespaced objects are created in the namespace default.
func (c *creator) create(t *testing.T, file, query string) answer {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	version, kind := versionLine.FindSubmatch(data), kindLine.FindSubmatch(data)
	if version == nil || kind == nil {
		t.Fatalf("%s has no apiVersion or kind", file)
	}
	resource := strings.ToLower(string(kind[1])) + "s"
	if before, ok := strings.CutSuffix(resource, "ys"); ok {
		resource = before + "ies"
	}
	path := "/apis/" + string(version[1]) + "/"
	if string(version[1]) == "v1" {
		path = "/api/v1/"
	}
	if namespaced[string(kind[1])] {
		namespace := "default"
		if m := inNamespace.FindSubmatch(data); m != nil {
			namespace = string(m[1])
		}
		path += "namespaces/" + namespace + "/"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.host+path+resource+"?"+query, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := answer{created: resp.StatusCode == http.StatusCreated, object: &unstructured.Unstructured{}}
	headers, _ := utilnet.ParseWarningHeaders(resp.Header["Warning"])
	for _, h := range headers {
		out.warnings = append(out.warnings, h.Text)
	}
	var into any = &out.Status
	if out.created {
		into = &out.object.Object
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil && resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%s: %s: %v", file, resp.Status, err)
	}
	return out
}

// answerSays checks that the response of the API server contains exactly the errors and warnings of lint.
func answerSays(t *testing.T, a answer, report *lintReport) {
	t.Helper()
	if a.created != (len(report.errors()) == 0) {
		t.Errorf("%s: created %v, %s %v\nlint: %v", report.name, a.created, a.Message, a.warnings, report.findings)
		return
	}
	if wordedDifferently[report.name] != "" {
		return
	}
	if warnedDifferently[report.name] == "" {
		sameWarnings(t, a.warnings, report)
	}
	if a.created {
		return
	}
	want := report.errors()
	var causes []metav1.StatusCause
	if a.Details != nil {
		causes = a.Details.Causes
	}
	for _, cause := range causes {
		i := slices.IndexFunc(want, func(f finding) bool { return f.Path == cause.Field && strings.HasSuffix(cause.Message, f.Message) })
		if i < 0 {
			t.Errorf("%s: the API server reports, and lint does not:\n  %s: %s", report.name, cause.Field, cause.Message)
			continue
		}
		want = slices.Delete(slices.Clone(want), i, i+1)
	}
	for _, f := range want {
		t.Errorf("%s: lint reports, and the API server does not:\n  %s: %s\n  but %s", report.name, f.Path, f.Message, a.Message)
	}
}

// sameWarnings compares warnings. The webhook shortens long ones; then only the beginning is compared.
func sameWarnings(t *testing.T, got []string, report *lintReport) {
	t.Helper()
	const shown = 120 // minimum number of characters of a shortened message
	want := report.warnings()
	for _, w := range got {
		i := slices.IndexFunc(want, func(f finding) bool {
			line := f.Path + ": " + f.Message
			return strings.TrimPrefix(line, ": ") == w || len(line) > 256 && strings.Contains(w, f.Message[:min(shown, len(f.Message))])
		})
		if i < 0 {
			t.Errorf("%s: the webhook warns, and lint does not:\n  %s", report.name, w)
			continue
		}
		want = slices.Delete(slices.Clone(want), i, i+1)
	}
	for _, f := range want {
		t.Errorf("%s: lint warns, and the webhook does not:\n  %s: %s", report.name, f.Path, f.Message)
	}
}

var more = regexp.MustCompile(`; and (\d+) more$`)

// conditionsSay checks that the conditions of a stored object contain the findings of lint: all errors, or the first warning and
// the number of others. Errors are also reported in an Event.
func conditionsSay(t *testing.T, k client.Client, report *lintReport) {
	t.Helper()
	if wordedDifferently[report.name] != "" || withoutConditions[report.object.GetKind()] != "" {
		return
	}
	testkit.Eventually(t, report.name+" has a condition", func(ctx context.Context) error {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(report.object.GroupVersionKind())
		if err := k.Get(ctx, client.ObjectKeyFromObject(report.object), object); err != nil {
			return err
		}
		status := struct {
			Status struct{ Conditions []metav1.Condition }
		}{}
		data, err := json.Marshal(object)
		if err == nil {
			err = json.Unmarshal(data, &status)
		}
		if err != nil {
			return err
		}
		accepted := meta.FindStatusCondition(status.Status.Conditions, nfdv1alpha1.ConditionAccepted)
		if accepted == nil || accepted.Status == metav1.ConditionUnknown {
			return fmt.Errorf("Accepted is %v", accepted)
		}
		conditionSays(t, accepted, report)
		if accepted.Status == metav1.ConditionTrue {
			return nil
		}
		return announced(ctx, k, object, accepted.Message)
	})
}

// announced returns an error if no warning Event of an object has the message of its condition. The API server accepts at most
// 1,024 bytes.
func announced(ctx context.Context, k client.Client, object *unstructured.Unstructured, message string) error {
	var events corev1.EventList
	if err := k.List(ctx, &events); err != nil {
		return err
	}
	for _, e := range events.Items {
		if e.InvolvedObject.UID == object.GetUID() && e.Type == corev1.EventTypeWarning && e.Message[:min(500, len(e.Message))] == message[:min(500, len(message))] {
			return nil
		}
	}
	return fmt.Errorf("no Event says %s", message)
}

func conditionSays(t *testing.T, accepted *metav1.Condition, report *lintReport) {
	t.Helper()
	message, rest := accepted.Message, 0
	if m := more.FindStringSubmatch(message); m != nil {
		rest, _ = strconv.Atoi(m[1])
	}
	list := report.errors()
	if (accepted.Status == metav1.ConditionFalse) != (len(list) > 0) {
		t.Errorf("%s: Accepted is %s: %s\nlint: %v", report.name, accepted.Status, message, report.findings)
		return
	}
	if len(list) == 0 {
		list = report.warnings()
	}
	said := 0
	for _, f := range list {
		if strings.Contains(message, f.Path+": ") && strings.Contains(message, f.Message) {
			said++
		}
	}
	if said+rest != len(list) {
		t.Errorf("%s: Accepted is %s: %s\nlint: %v", report.name, accepted.Status, message, report.findings)
	}
}
