package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const values = `# About the file.

# What it is called.
# @pattern ^[a-z]+$
# @wanted lower-case letters
name: ""
part:
  # How many.
  # @min 1
  count: 2
  # Anything.
  # @open
  extra: {}
  # Which one.
  # @enum A, B
  kind: A
  # Perhaps.
  # @type boolean|null
  maybe: null
`

func TestSchemaIsStrict(t *testing.T) {
	root, err := parse([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	data, err := root.schema()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of Assay's chart",
		"type": "object", "additionalProperties": false,
		"properties": map[string]any{
			"name": map[string]any{"type": "string", "description": "What it is called.",
				"if": map[string]any{"type": "string", "not": map[string]any{"pattern": "^[a-z]+$"}}, "then": map[string]any{"const": "lower-case letters"}},
			"part": map[string]any{
				"type": []any{"object", "null"}, "additionalProperties": false,
				"properties": map[string]any{
					"count": map[string]any{"type": "integer", "description": "How many.", "minimum": 1.0},
					"extra": map[string]any{"type": []any{"object", "null"}, "description": "Anything."},
					"kind":  map[string]any{"type": "string", "description": "Which one.", "enum": []any{"A", "B"}},
					"maybe": map[string]any{"type": []any{"boolean", "null"}, "description": "Perhaps."},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestRefusesValuesThatSayTooLittle(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"NoWanted":     {"# It.\n# @pattern a\na: 1\n", "say what the pattern means with the hint @wanted"},
		"NoComment":    {"a: 1\n", "line 1: a: say in a comment"},
		"NoSuchHint":   {"# It.\n# @minimum 1\na: 1\n", "there is no hint @minimum"},
		"NoSetting":    {"# @setting other\na: 1\n", "unknown setting other"},
		"OwnText":      {"controller:\n  # How often.\n  resyncPeriod: \"\"\n", "write the hint @setting resyncPeriod"},
		"EmptyMapping": {"# It.\na: {}\n", "@open"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(test.values))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// TestSettingsAreDescribedByTheirDeclarations: what is above the hint is replaced, what is below is kept.
func TestSettingsAreDescribedByTheirDeclarations(t *testing.T) {
	got, err := describe([]byte("controller:\n  # Old.\n  # Older.\n  # @setting nfdApiParallelism\n  # @type integer|null\n  nfdApiParallelism: null\n" +
		"  # @setting enableTaints\n  # It adds a permission.\n  enableTaints: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "controller:\n  # Maximum number of nodes that are evaluated at once. Empty: 10.\n  # @setting nfdApiParallelism\n  # @type integer|null\n" +
		"  nfdApiParallelism: null\n  # Let rules create taints.\n  # @setting enableTaints\n  # It adds a permission.\n  enableTaints: false\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("described (-want +got):\n%s", diff)
	}
	if again, err := describe(got); err != nil || string(again) != want {
		t.Errorf("described again: %s, %v", again, err)
	}
	root, err := parse(got)
	if err != nil {
		t.Fatal(err)
	}
	data, err := root.schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"minimum": 1`, "Let rules create taints. It adds a permission."} {
		if !strings.Contains(string(data), part) {
			t.Errorf("the schema lacks %q:\n%s", part, data)
		}
	}
}

func TestDocumentsEachValue(t *testing.T) {
	root, err := parse([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	page := string(root.markdown())
	for _, want := range []string{
		"| `name` | `\"\"` | What it is called. |\n",
		"## `part`\n",
		"| `part.kind` | `\"A\"` | Which one. One of: A, B. |\n",
		"| `part.extra` | `{}` | Anything. |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestKustomizeBaseKnowsNoHelm(t *testing.T) {
	dir := t.TempDir()
	err := kustomize(strings.NewReader(`---
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  labels: {app.kubernetes.io/component: worker, helm.sh/chart: assay-1, app.kubernetes.io/managed-by: Helm}
  annotations: {helm.sh/resource-policy: keep}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
`), dir)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"worker.yaml":   "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels:\n    app.kubernetes.io/component: worker\n  name: a\n",
		"policies.yaml": "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	if err := kustomize(strings.NewReader(""), dir); err == nil {
		t.Error("nothing to write was no error")
	}
}
