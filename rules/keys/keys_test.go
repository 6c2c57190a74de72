package keys_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/assay-project/assay/rules/keys"
)

func TestLabel(t *testing.T) {
	extra := keys.Policy{ExtraNamespaces: []string{"kubernetes.io", "denied.example.com", "node.kubernetes.io"}, DenyNamespaces: []string{"denied.example.com"}}
	denySuffix := keys.Policy{DenyNamespaces: []string{"*.vendor.com", "plain.com"}}
	denyAll := keys.Policy{DenyNamespaces: []string{"*"}}
	strictDenyAll := keys.Policy{DenyNamespaces: []string{"*"}, Strict: true}
	white := keys.Policy{LabelWhiteList: regexp.MustCompile("^pci-")}
	bare := keys.Policy{DisableAutoPrefix: true}
	own := keys.Policy{Protected: []string{"acme.com/critical", "*.bank.com", "vault.io"}}

	tests := map[string]struct {
		policy      keys.Policy
		name, value string
		key         string
		cause       keys.Cause
	}{
		"AddsDefaultNamespace":           {name: "foo", value: "true", key: "feature.node.kubernetes.io/foo"},
		"KeepsNamespace":                 {name: "vendor.io/foo", value: "1", key: "vendor.io/foo"},
		"EmptyValue":                     {name: "foo", key: "feature.node.kubernetes.io/foo"},
		"SubNamespaceOfFeature":          {name: "x.feature.node.kubernetes.io/foo", key: "x.feature.node.kubernetes.io/foo"},
		"Profile":                        {name: "profile.node.kubernetes.io/foo", key: "profile.node.kubernetes.io/foo"},
		"SubNamespaceOfProfile":          {name: "x.profile.node.kubernetes.io/foo", key: "x.profile.node.kubernetes.io/foo"},
		"K8sIoIsOpenAsInNFD":             {name: "k8s.io/foo", key: "k8s.io/foo"},
		"KubernetesIo":                   {name: "kubernetes.io/foo", key: "kubernetes.io/foo", cause: keys.BadNamespace},
		"BelowKubernetesIo":              {name: "a.b.kubernetes.io/foo", key: "a.b.kubernetes.io/foo", cause: keys.BadNamespace},
		"NotBelowButEndingAlike":         {name: "mykubernetes.io/foo", key: "mykubernetes.io/foo"},
		"EndingLikeFeature":              {name: "xfeature.node.kubernetes.io/foo", key: "xfeature.node.kubernetes.io/foo", cause: keys.BadNamespace},
		"ExtraOpensKubernetesIo":         {policy: extra, name: "kubernetes.io/foo", key: "kubernetes.io/foo"},
		"ExtraDoesNotOpenProtectedKey":   {policy: extra, name: "kubernetes.io/hostname", value: "x", key: "kubernetes.io/hostname", cause: keys.ProtectedKey},
		"ExtraDoesNotOpenProtectedSpace": {policy: extra, name: "node.kubernetes.io/not-ready", key: "node.kubernetes.io/not-ready", cause: keys.ProtectedKey},
		"ExtraIsExact":                   {policy: extra, name: "a.kubernetes.io/foo", key: "a.kubernetes.io/foo", cause: keys.BadNamespace},
		"ExtraBeatsDeny":                 {policy: extra, name: "denied.example.com/foo", key: "denied.example.com/foo"},
		"ExtraStillValidatesValue":       {policy: extra, name: "kubernetes.io/foo", value: "a b", key: "kubernetes.io/foo", cause: keys.BadValue},
		"ExtraStillValidatesName":        {policy: extra, name: "denied.example.com/a b", key: "denied.example.com/a b", cause: keys.BadName},
		"DenySuffix":                     {policy: denySuffix, name: "a.vendor.com/foo", key: "a.vendor.com/foo", cause: keys.Denied},
		"DenySuffixSparesApex":           {policy: denySuffix, name: "vendor.com/foo", key: "vendor.com/foo"},
		"DenyExact":                      {policy: denySuffix, name: "plain.com/foo", key: "plain.com/foo", cause: keys.Denied},
		"DenyExactSparesSubdomain":       {policy: denySuffix, name: "a.plain.com/foo", key: "a.plain.com/foo"},
		"DenyAllSparesDefault":           {policy: denyAll, name: "foo", key: "feature.node.kubernetes.io/foo"},
		"DenyAllSparesProfile":           {policy: denyAll, name: "profile.node.kubernetes.io/foo", key: "profile.node.kubernetes.io/foo"},
		"DenyAllTakesSubNamespace":       {policy: denyAll, name: "x.feature.node.kubernetes.io/foo", key: "x.feature.node.kubernetes.io/foo", cause: keys.Denied},
		"StrictDenyAllTakesDefault":      {policy: strictDenyAll, name: "foo", key: "feature.node.kubernetes.io/foo", cause: keys.Denied},
		"WhiteListSeesNameOnly":          {policy: white, name: "vendor.io/pci-1", key: "vendor.io/pci-1"},
		"NotWhiteListed":                 {policy: white, name: "usb-1", key: "feature.node.kubernetes.io/usb-1", cause: keys.NotWhiteListed},
		"BareName":                       {policy: bare, name: "foo", key: "foo"},
		"BareProtected":                  {policy: bare, name: "ToBeDeletedByClusterAutoscaler", key: "ToBeDeletedByClusterAutoscaler", cause: keys.ProtectedKey},
		"OwnProtectedKey":                {policy: own, name: "acme.com/critical", key: "acme.com/critical", cause: keys.ProtectedKey},
		"OwnProtectedNeighbour":          {policy: own, name: "acme.com/other", key: "acme.com/other"},
		"OwnProtectedSuffix":             {policy: own, name: "a.bank.com/x", key: "a.bank.com/x", cause: keys.ProtectedKey},
		"OwnProtectedNamespace":          {policy: own, name: "vault.io/x", key: "vault.io/x", cause: keys.ProtectedKey},
		"EmptyName":                      {name: "", key: "feature.node.kubernetes.io/", cause: keys.BadName},
		"TwoSlashes":                     {name: "a/b/c", key: "a/b/c", cause: keys.BadName},
		"EmptyNamespace":                 {name: "/b", key: "/b", cause: keys.BadName},
		"UpperCaseNamespace":             {name: "Vendor.io/b", key: "Vendor.io/b", cause: keys.BadName},
		"Space":                          {name: "foo ", key: "feature.node.kubernetes.io/foo ", cause: keys.BadName},
		"Newline":                        {name: "a\nb", key: "feature.node.kubernetes.io/a\nb", cause: keys.BadName},
		"ZeroWidth":                      {name: "a\u200bb", key: "feature.node.kubernetes.io/a\u200bb", cause: keys.BadName},
		"InvalidUTF8":                    {name: "a\xffb", key: "feature.node.kubernetes.io/a\xffb", cause: keys.BadName},
		"LongName":                       {name: strings.Repeat("a", 64), key: "feature.node.kubernetes.io/" + strings.Repeat("a", 64), cause: keys.BadName},
		"LongValue":                      {name: "foo", value: strings.Repeat("a", 64), key: "feature.node.kubernetes.io/foo", cause: keys.BadValue},
		"SlashInValue":                   {name: "foo", value: "a/b", key: "feature.node.kubernetes.io/foo", cause: keys.BadValue},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.policy.Label(tc.name, tc.value)
			if diff := cmp.Diff(tc.cause, got.Cause); diff != "" {
				t.Errorf("cause (-want +got):\n%s%s", diff, got.Message())
			}
			if diff := cmp.Diff(tc.key, got.Key); diff != "" {
				t.Errorf("key (-want +got):\n%s", diff)
			}
			if !got.OK() && (got.Reason == "" || !utf8.ValidString(got.Message())) {
				t.Errorf("a refusal needs a printable reason: %q", got.Message())
			}
		})
	}
}

func TestAnnotation(t *testing.T) {
	tests := map[string]struct {
		name, value string
		cause       keys.Cause
	}{
		"Default":       {name: "foo", value: "any text, {even} this"},
		"Foreign":       {name: "vendor.io/foo"},
		"Longest":       {name: "foo", value: strings.Repeat("é", keys.MaxAnnotationValue/2)},
		"TooLong":       {name: "foo", value: strings.Repeat("x", keys.MaxAnnotationValue+1), cause: keys.BadValue},
		"NotUTF8":       {name: "foo", value: "\xff", cause: keys.BadValue},
		"Profile":       {name: "profile.node.kubernetes.io/foo", cause: keys.BadNamespace},
		"Bookkeeping":   {name: "nfd.node.kubernetes.io/feature-labels", cause: keys.ProtectedKey},
		"OtherInstance": {name: "a.nfd.node.kubernetes.io/feature-labels", cause: keys.ProtectedKey},
		"Ours":          {name: "assay.dev/required-features", cause: keys.ProtectedKey},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var policy keys.Policy
			if got := policy.Annotation(tc.name, tc.value); got.Cause != tc.cause {
				t.Errorf("got cause %q, want %q: %s", got.Cause, tc.cause, got.Message())
			}
		})
	}
}

func TestResource(t *testing.T) {
	tests := map[string]struct {
		policy         keys.Policy
		name, quantity string
		cause          keys.Cause
	}{
		"Whole":              {name: "vendor.io/foo", quantity: "4"},
		"Zero":               {name: "vendor.io/foo", quantity: "0"},
		"DefaultNamespace":   {name: "foo", quantity: "4"},
		"Kibi":               {name: "vendor.io/foo", quantity: "1Gi"},
		"Kilo":               {name: "vendor.io/foo", quantity: "1.5k"},
		"Exponent":           {name: "vendor.io/foo", quantity: "2e3"},
		"LongExponent":       {name: "vendor.io/foo", quantity: "2e10"},
		"WholeInMilli":       {name: "vendor.io/foo", quantity: "2000m"},
		"Largest":            {name: "vendor.io/foo", quantity: "9223372036854775"},
		"TooLarge":           {name: "vendor.io/foo", quantity: "9223372036854776", cause: keys.BadValue},
		"Capped":             {name: "vendor.io/foo", quantity: "1e30", cause: keys.BadValue},
		"HugeExponent":       {name: "vendor.io/foo", quantity: "1e999999999", cause: keys.BadValue},
		"ManyDigits":         {name: "vendor.io/foo", quantity: strings.Repeat("9", 100_000), cause: keys.BadValue},
		"Negative":           {name: "vendor.io/foo", quantity: "-1", cause: keys.BadValue},
		"Fraction":           {name: "vendor.io/foo", quantity: "0.5", cause: keys.BadValue},
		"Milli":              {name: "vendor.io/foo", quantity: "100m", cause: keys.BadValue},
		"Tiny":               {name: "vendor.io/foo", quantity: "1.0000000000001", cause: keys.BadValue},
		"StrictNegative":     {policy: keys.Policy{Strict: true}, name: "vendor.io/foo", quantity: "-1"},
		"StrictMilli":        {policy: keys.Policy{Strict: true}, name: "vendor.io/foo", quantity: "100m"},
		"Empty":              {name: "vendor.io/foo", cause: keys.BadValue},
		"Words":              {name: "vendor.io/foo", quantity: "many", cause: keys.BadValue},
		"Unresolved":         {name: "vendor.io/foo", quantity: "@a.b.c", cause: keys.BadValue},
		"CPU":                {name: "cpu", quantity: "4", cause: keys.ProtectedKey},
		"StrictCPU":          {policy: keys.Policy{Strict: true}, name: "cpu", quantity: "4"},
		"BareName":           {policy: keys.Policy{DisableAutoPrefix: true}, name: "foo", quantity: "4", cause: keys.BadName},
		"RequestsOfQuota":    {name: "requests.vendor.io/foo", quantity: "4", cause: keys.BadName},
		"KubernetesResource": {name: "kubernetes.io/foo", quantity: "4", cause: keys.BadNamespace},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.Resource(tc.name, tc.quantity); got.Cause != tc.cause {
				t.Errorf("got cause %q, want %q: %s", got.Cause, tc.cause, got.Message())
			}
		})
	}
}

func TestTaint(t *testing.T) {
	tests := map[string]struct {
		taint  corev1.Taint
		cause  keys.Cause
		advice string
	}{
		"Good":              {taint: corev1.Taint{Key: "vendor.io/special", Value: "true", Effect: "NoSchedule"}},
		"NoValue":           {taint: corev1.Taint{Key: "feature.node.kubernetes.io/fake", Effect: "NoExecute"}},
		"NeedsNamespace":    {taint: corev1.Taint{Key: "special", Effect: "NoSchedule"}, cause: keys.BadName, advice: "feature.node.kubernetes.io/special"},
		"InvalidKey":        {taint: corev1.Taint{Key: "vendor.io/a b", Effect: "NoSchedule"}, cause: keys.BadName},
		"InvalidValue":      {taint: corev1.Taint{Key: "vendor.io/a", Value: "a b", Effect: "NoSchedule"}, cause: keys.BadValue},
		"MisspeltEffect":    {taint: corev1.Taint{Key: "vendor.io/a", Effect: "no-schedule"}, cause: keys.BadValue, advice: "write NoSchedule"},
		"UnknownEffect":     {taint: corev1.Taint{Key: "vendor.io/a", Effect: "Evict"}, cause: keys.BadValue, advice: "PreferNoSchedule or NoExecute"},
		"Profile":           {taint: corev1.Taint{Key: "profile.node.kubernetes.io/a", Effect: "NoSchedule"}, cause: keys.BadNamespace},
		"LifecycleOfNode":   {taint: corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}, cause: keys.ProtectedKey},
		"CloudProvider":     {taint: corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: "NoSchedule"}, cause: keys.ProtectedKey},
		"ControlPlane":      {taint: corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}, cause: keys.ProtectedKey},
		"StaysUnprefixable": {taint: corev1.Taint{Key: "/a", Effect: "NoSchedule"}, cause: keys.BadName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var policy keys.Policy
			got := policy.Taint(tc.taint)
			if got.Cause != tc.cause || !strings.Contains(got.Instead, tc.advice) {
				t.Errorf("got cause %q, want %q with advice %q: %s", got.Cause, tc.cause, tc.advice, got.Message())
			}
		})
	}
}

// Keys that Kubernetes uses to schedule and evict pods and to authorize nodes. No rule may set them, whatever the policy.
var reserved = func() []string {
	data, err := os.ReadFile("testdata/reserved.txt")
	if err != nil {
		panic(err)
	}
	return strings.Fields(string(data))
}()

func TestReservedKeysAreProtectedWhateverThePolicy(t *testing.T) {
	for _, key := range reserved {
		t.Run(key, func(t *testing.T) {
			namespace, _ := keys.Split(key)
			for _, policy := range []keys.Policy{
				{},
				{Strict: true},
				{ExtraNamespaces: []string{namespace}},
				{DisableAutoPrefix: true, ExtraNamespaces: []string{namespace}, Strict: true},
			} {
				got := map[string]keys.Verdict{
					"label":      policy.Label(key, "x"),
					"annotation": policy.Annotation(key, "x"),
					"resource":   policy.Resource(key, "1"),
					"taint":      policy.Taint(corev1.Taint{Key: key, Value: "x", Effect: corev1.TaintEffectNoSchedule}),
				}
				for kind, v := range got {
					if v.Cause != keys.ProtectedKey {
						t.Errorf("%s: got cause %q: %s", kind, v.Cause, v.Message())
					}
				}
			}
		})
	}
	for _, name := range []string{"cpu", "memory", "pods", "storage", "ephemeral-storage", "hugepages-2Mi", "attachable-volumes-csi-x", "requests.cpu", "limits.cpu"} {
		var policy keys.Policy
		if v := policy.ResourceName(name); v.Cause != keys.ProtectedKey {
			t.Errorf("resource %s: got cause %q", name, v.Cause)
		}
	}
}

func TestQualifyAllPrefersTheSpelledOutKey(t *testing.T) {
	var policy keys.Policy
	got := policy.QualifyAll(map[string]string{"a": "bare", "feature.node.kubernetes.io/a": "spelled out", "b": "1", "v.io/c": "2"})
	want := map[string]string{"feature.node.kubernetes.io/a": "spelled out", "feature.node.kubernetes.io/b": "1", "v.io/c": "2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzAgreesWithAPIServer compares the checks with those of the API server.
func FuzzAgreesWithAPIServer(f *testing.F) {
	for _, s := range append([]string{"", "a", "a/b", "a.b/c", "-a", "a-", "a.-b/c", "a..b/c", ".a/b", "a./b", "a_b", "A/b", "é", "a/b/c"}, reserved...) {
		f.Add(s)
	}
	policy := keys.Policy{DisableAutoPrefix: true}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := policy.LabelName(s).Cause != keys.BadName, len(validation.IsQualifiedName(s)) == 0; got != want {
			t.Errorf("name %q: got %v, want %v", s, got, want)
		}
		if got, want := policy.Label("a", s).OK(), len(validation.IsValidLabelValue(s)) == 0; got != want {
			t.Errorf("value %q: got %v, want %v", s, got, want)
		}
	})
}

func TestAcceptedLabelAllocatesNothing(t *testing.T) {
	policy := keys.Policy{DenyNamespaces: []string{"*.vendor.com"}, ExtraNamespaces: []string{"kubernetes.io"}}
	if n := testing.AllocsPerRun(100, func() { policy.Label("feature.node.kubernetes.io/cpu-cpuid.AVX", "true") }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkLabel(b *testing.B) {
	var policy keys.Policy
	b.ReportAllocs()
	for b.Loop() {
		policy.Label("feature.node.kubernetes.io/pci-0300_10de.present", "true")
	}
}

// TestLongNamesAreShortened checks that messages contain at most 80 bytes of a name and never part of a character.
func TestLongNamesAreShortened(t *testing.T) {
	for name, want := range map[string]string{
		strings.Repeat("!", 80):        strings.Repeat("!", 80),
		strings.Repeat("!", 81):        strings.Repeat("!", 80) + "…",
		strings.Repeat("!", 79) + "éé": strings.Repeat("!", 79) + "…",
	} {
		message := (&keys.Policy{}).Label(name, "").Message()
		if !strings.Contains(message, want) || strings.Contains(message, want+"…") != strings.HasSuffix(want, "……") || !utf8.ValidString(message) {
			t.Errorf("%q: the message is %q", name, message)
		}
	}
}
