package assembly

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

func TestKeptComesBackAsItWas(t *testing.T) {
	want := &Kept{
		UID: "1234", Hash: "tree:sha256:00",
		Spec: &nfdv1alpha1.NodeFeatureRuleSpec{
			RulesFrom: []nfdv1alpha1.RulesSource{{SecretKeyRef: &nfdv1alpha1.KeyRef{Name: "s", Key: "k"}}},
			Rules: []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{"a": "b"},
				Conditions: []nfdv1alpha1.Condition{{Op: "eq", Args: nfdv1alpha1.JSON{Raw: []byte(`{"values":[1,"1"]}`)}}}}},
		},
		Origins: []nfdv1alpha1.RuleOrigin{{Rule: "r", From: "site"}},
	}
	if diff := cmp.Diff(want, Unpack(want.Pack())); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestWhatNobodyKeptIsNotUsed(t *testing.T) {
	compress := func(text []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, data := range map[string][]byte{
		"Nothing":       nil,
		"PlainText":     []byte(`{"spec":{}}`),
		"NoJSON":        compress([]byte("rules")),
		"NoSpec":        compress([]byte(`{"hash":"x"}`)),
		"Bomb":          compress(append([]byte(`{"spec":{}}`), bytes.Repeat([]byte(" "), maxKept)...)),
		"CutOff":        compress([]byte(`{"spec":{}}`))[:20],
		"OfAnotherKind": compress([]byte(`{"spec":[1]}`)),
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unpack(data); got != nil {
				t.Errorf("%+v was taken", got)
			}
		})
	}
}
