package webhook

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// TestRulesAreDecodedAsUsual compares the decoder of rules with the usual one: for all cases of this package, and for damaged ones.
func TestRulesAreDecodedAsUsual(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatal(err, len(files))
	}
	r, fast := rand.New(rand.NewPCG(1, 2)), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil || !bytes.Contains(raw, []byte(`"NodeFeatureRule"`)) {
			continue
		}
		if sameRule(t, raw) {
			fast++
		}
		for range 40 {
			damaged := bytes.Clone(raw)
			damaged[r.IntN(len(raw))] = "{}[]\",:\\ 1tn\xff\x00"[r.IntN(14)]
			sameRule(t, damaged)
		}
		if t.Failed() {
			t.Fatal(file)
		}
	}
	if fast < 80 {
		t.Errorf("only %d of the objects are decoded without reflection", fast)
	}
}

// sameRule decodes an object both ways and reports whether it was decoded without reflection.
func sameRule(t *testing.T, raw []byte) bool {
	t.Helper()
	want, got := &nfdv1alpha1.NodeFeatureRule{}, &nfdv1alpha1.NodeFeatureRule{}
	wantErr := utiljson.Unmarshal(raw, want)
	_, gotErr := decode(raw, got)
	if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !reflect.DeepEqual(want, got) && !repeated(raw) {
		t.Errorf("%s\nis decoded to %+v, %v\nwant %+v, %v", raw, got, gotErr, want, wantErr)
	}
	_, ok := decodeRule(raw, &nfdv1alpha1.NodeFeatureRule{})
	return ok
}

// repeated reports whether JSON has a name twice in an object, as no API server writes it.
func repeated(raw []byte) bool {
	_, err := yaml.YAMLToJSONStrict(raw)
	return err != nil
}
