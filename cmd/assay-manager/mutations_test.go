//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/testkit"
)

// mutationsVar is the environment variable for the number of objects in TestMutatedObjectsGetOneVerdict. The long form of the test
// uses 2000.
const mutationsVar = "ASSAY_MUTATIONS"

// defaultMutations is the default number of objects.
const defaultMutations = 100

// verdictsDiffer lists errors of lint for objects that the API server accepts, and the reason.
var verdictsDiffer = map[string]string{
	"an empty expression matches any value": "the API server drops null, so that the webhook never sees the expression that the author wrote",
}

// TestMutatedObjectsGetOneVerdict changes valid objects at random, with a fixed seed, lints them and creates them: lint must reject
// exactly the objects that an API server with the webhook rejects.
func TestMutatedObjectsGetOneVerdict(t *testing.T) {
	c := testkit.Cluster(t)
	n := defaultMutations
	if s := os.Getenv(mutationsVar); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	files := mutants(t, dir, n)
	linted := lintFiles(t, []string{dir})
	api := newCreator(t, c)
	startWebhook(t, c, "--node-warnings=false", "--enable-taints")
	rejected, differ := 0, 0
	for _, file := range files {
		a, report := api.create(t, file, "fieldValidation=Strict&dryRun=All"), linted[file]
		if !a.created {
			rejected++
		}
		if a.created == (len(report.errors()) == 0) || excused(a, report) {
			continue
		}
		differ++
		data, _ := os.ReadFile(file)
		t.Errorf("%s: created %v: %s\nlint: %v\n%s", report.name, a.created, a.Message, report.findings, data)
	}
	t.Logf("of %d objects the API server rejects %d, and lint differs about %d", n, rejected, differ)
}

// excused reports whether an object is accepted that lint rejects only for known reasons.
func excused(a answer, report *lintReport) bool {
	return a.created && !slices.ContainsFunc(report.errors(), func(f finding) bool {
		for text := range verdictsDiffer {
			if strings.Contains(f.Message, text) {
				return false
			}
		}
		return true
	})
}

// mutants writes n objects to the directory, each a valid object with one to three changes.
func mutants(t *testing.T, dir string, n int) []string {
	t.Helper()
	var objects []map[string]any
	for _, pattern := range []string{"../../webhook/testdata/good/*.yaml", "testdata/valid/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, file := range files {
			object := map[string]any{}
			data, err := os.ReadFile(file)
			if err == nil {
				err = yaml.Unmarshal(data, &object)
			}
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, object)
		}
	}
	out := make([]string, n)
	for i := range out {
		m := mutator{rand.New(rand.NewPCG(1, uint64(i)))}
		object := runtime.DeepCopyJSON(toJSON(t, objects[i%len(objects)]))
		for range 1 + m.IntN(3) {
			m.change(object["spec"])
		}
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = filepath.Join(dir, fmt.Sprintf("%04d.yaml", i))
		if err := os.WriteFile(out[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// toJSON returns the object with the value types of decoded JSON.
func toJSON(t *testing.T, object map[string]any) (out map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// mutator makes random changes to objects.
type mutator struct{ *rand.Rand }

// change changes one place in a map or list, at a random depth.
func (m mutator) change(at any) {
	switch v := at.(type) {
	case map[string]any:
		if len(v) == 0 {
			return
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		key := keys[m.IntN(len(keys))]
		if m.descend(v[key]) {
			m.change(v[key])
			return
		}
		switch m.IntN(4) {
		case 0:
			delete(v, key)
		case 1:
			v[m.misspell(key)] = v[key]
			delete(v, key)
		default:
			v[key] = m.replace(v[key])
		}
	case []any:
		if len(v) == 0 {
			return
		}
		i := m.IntN(len(v))
		if m.descend(v[i]) {
			m.change(v[i])
			return
		}
		v[i] = m.replace(v[i])
	}
}

// descend decides whether to change an element of a value or the value itself. Most changes are deep.
func (m mutator) descend(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0 && m.IntN(10) > 0
	case []any:
		return len(v) > 0 && m.IntN(10) > 0
	}
	return false
}

// misspell returns a string with one change.
func (m mutator) misspell(s string) string {
	if s == "" {
		return "x"
	}
	i := m.IntN(len(s))
	switch m.IntN(5) {
	case 0:
		return s[:i] + s[i+1:]
	case 1:
		return s[:i] + string(s[i]) + s[i:]
	case 2:
		return strings.ToUpper(s)
	case 3:
		return s[:i] + string(`/@{}(.*+ _-:"0`[m.IntN(14)]) + s[i:]
	}
	return strings.ToLower(s)
}

// replace returns another value.
func (m mutator) replace(v any) any {
	if s, ok := v.(string); ok && m.IntN(2) == 0 {
		return m.misspell(s)
	}
	if list, ok := v.([]any); ok && len(list) > 0 && m.IntN(2) == 0 {
		if m.IntN(2) == 0 {
			return list[1:]
		}
		return append(slices.Clone(list), list[m.IntN(len(list))])
	}
	others := []any{
		"", "x", "true", "5", strings.Repeat("a", 70), true, 5, -1, 1.5, nil,
		[]any{}, []any{"x"}, []any{"5", "1"}, []any{nil}, map[string]any{}, map[string]any{"x": "y"}, map[string]any{"name": nil},
	}
	return others[m.IntN(len(others))]
}
