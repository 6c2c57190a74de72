package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/assay-project/assay/webhook"
)

// TestRequestsThatLackSomething reviews requests for each kind whose objects are missing or have another type: the API server never
// sends them, but other clients must not cause a panic. The server of these tests fails on any panic.
func TestRequestsThatLackSomething(t *testing.T) {
	objects := map[string]string{
		"Nothing": "", "Null": "null", "Empty": "{}", "List": "[]", "Text": `"x"`, "Number": "7", "Cut": `{"metadata":{"na`,
		"SpecIsAList": `{"spec":[]}`, "SpecIsNull": `{"metadata":null,"spec":null}`, "Deep": `{"spec":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}",
		"RulesAreText": `{"spec":{"rules":"x"}}`, "NullRule": `{"spec":{"rules":[null]}}`, "NotUTF8": "{\"metadata\":{\"name\":\"\xff\"}}",
	}
	harmless := map[string]bool{"Nothing": true, "Null": true, "Empty": true, "SpecIsNull": true, "NotUTF8": true} // no rules
	s := newServer(t, nil)
	for kind, plural := range resources {
		group := "assay.dev"
		if kind == "NodeFeature" || kind == "NodeFeatureRule" || kind == "NodeFeatureGroup" {
			group = "nfd.k8s-sigs.io"
		}
		for name, raw := range objects {
			for _, op := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "Frobnicate"} {
				for old, oldRaw := range map[string]string{"WithoutOld": "", "WithOld": raw} {
					got := s.Review(context.Background(), &admissionv1.AdmissionRequest{
						UID: "1", Operation: op, Name: "x", Namespace: "x",
						Kind:     metav1.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind},
						Resource: metav1.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural},
						Object:   runtime.RawExtension{Raw: []byte(raw)}, OldObject: runtime.RawExtension{Raw: []byte(oldRaw)},
					})
					switch {
					case got == nil || got.UID != "1" || !got.Allowed && (got.Result == nil || got.Result.Message == ""):
						t.Errorf("%s %s %s %s: the answer is %+v", op, kind, name, old, got)
					case op == admissionv1.Create && got.Allowed && kind == "NodeFeatureRule" && !harmless[name]:
						t.Errorf("%s %s %s: it is allowed", op, kind, name)
					}
				}
			}
		}
	}
}

// TestManyReviewsAtOnce sends ten thousand requests, a thousand concurrently. Each gets a response: its review, or a rejection
// because there are too many.
func TestManyReviewsAtOnce(t *testing.T) {
	h := newServer(t, nil).Handler()
	req := request(t, []byte(ruleYAML(`{rules: [{name: broken, labels: {a: "{nope}"}}]}`)))
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	codes := map[int]int{}
	var wg sync.WaitGroup
	ask := func() {
		r := httptest.NewRequest(http.MethodPost, webhook.ReviewPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusOK && !strings.Contains(w.Body.String(), `"allowed":false`) {
			t.Errorf("the broken rule is let through: %s", w.Body)
		}
		mu.Lock()
		defer mu.Unlock()
		codes[w.Code]++
	}
	for range 1000 {
		wg.Go(func() {
			for range 10 {
				ask()
			}
		})
	}
	wg.Wait()
	if codes[http.StatusOK] != 10_000 {
		t.Errorf("the answers are %v", codes)
	}
}

// TestManyEmptyPartsAreNotDecoded: mutating admission comes before the API server checks the number of rules, and an object of 3 MiB
// with a million empty rules would take a gigabyte of memory.
func TestManyEmptyPartsAreNotDecoded(t *testing.T) {
	s := newServer(t, nil)
	for name, tc := range map[string]struct{ kind, group, field, part string }{
		"Rules":      {"NodeFeatureRule", "nfd.k8s-sigs.io", "rules", "{}"},
		"NullRules":  {"NodeFeatureRule", "nfd.k8s-sigs.io", "rules", "null"},
		"GroupRules": {"NodeFeatureGroup", "nfd.k8s-sigs.io", "featureGroupRules", "{}"},
		"Templates":  {"NodeFeatureRuleTemplate", "assay.dev", "rules", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			list := strings.Repeat(tc.part+",", 3<<20/(len(tc.part)+1)-1) + tc.part
			req := &admissionv1.AdmissionRequest{
				UID: "1", Operation: admissionv1.Create, Name: "x",
				Kind:     metav1.GroupVersionKind{Group: tc.group, Version: "v1alpha1", Kind: tc.kind},
				Resource: metav1.GroupVersionResource{Group: tc.group, Version: "v1alpha1", Resource: resources[tc.kind]},
				Object:   runtime.RawExtension{Raw: []byte(`{"spec":{"` + tc.field + `":[` + list + `]}}`)},
			}
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			got := s.Review(context.Background(), req)
			goruntime.ReadMemStats(&after)
			if got.Allowed || !strings.Contains(got.Result.Message, "at most 65536 are allowed") {
				t.Errorf("the answer is %+v", got)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("the review allocates %d bytes", n)
			}
		})
	}
}
