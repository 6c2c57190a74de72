package webhook

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzOpen compares what is found in JSON with what encoding/json decodes.
func FuzzOpen(f *testing.F) {
	for _, text := range []string{
		`{"request":{"uid":"1","object":{"spec":{"a":["}",{"b":"\"]"}]},"metadata":{}},"oldObject":null}}`,
		` { "request" : { "object" : { "spec" : { "sensitive" : true } , "x" : [ ] } , "oldObject" : 7 } , "kind" : "AdmissionReview" } `,
		`{"request":null}`, `{"request":[{"object":1}]}`, `{"object":{}}`, `{}`, `[]`, `{"request":{"object":"{\\\"}"}}`, `{"spec":true}`, `{"a`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(checkOpen)
}

func checkOpen(t *testing.T, raw []byte) {
	rest, object, old := openReview(raw)
	sensitive := specFlag(raw, "sensitive")
	if !json.Valid(raw) || twice(raw) {
		return // only must not panic
	}
	raw = bytes.TrimSpace(raw)
	if !json.Valid(rest) {
		t.Errorf("the rest is %s", rest)
	}
	var want struct {
		Request struct{ Object, OldObject json.RawMessage } `json:"request"`
	}
	if json.Unmarshal(raw, &want) == nil {
		same(t, "object", object, want.Request.Object)
		same(t, "oldObject", old, want.Request.OldObject)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(fields["spec"], &inner) == nil && sensitive != (string(inner["sensitive"]) == "true") {
		t.Errorf("sensitive is %v in %s", sensitive, raw)
	}
}

// twice reports whether the JSON has two members of one name, or names that encoding/json reads as this one.
func twice(raw []byte) bool {
	lower := bytes.ToLower(raw)
	for _, key := range []string{"request", "object", "oldObject", "spec", "sensitive"} {
		quoted := []byte(`"` + key + `"`)
		if n := bytes.Count(lower, bytes.ToLower(quoted)); n > 1 || n != bytes.Count(raw, quoted) {
			return true
		}
	}
	return bytes.Contains(raw, []byte(`\u`)) || !bytes.Equal(bytes.ToValidUTF8(raw, nil), raw) || bytes.ContainsRune(raw, 'ſ')
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if string(want) == "null" && got == nil {
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}
