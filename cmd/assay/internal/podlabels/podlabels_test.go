package podlabels_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
)

// TestWhichNodesMeetWhatAPodRequires: as the scheduler decides it, for n1 with kernel 6 and AVX, and n2 with kernel 7.
func TestWhichNodesMeetWhatAPodRequires(t *testing.T) {
	long := strings.Repeat("n", 80) // longer than the value of a label
	nodes := []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kernel": "6", "avx": "true"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: long, Labels: map[string]string{"kernel": "7"}}},
	}
	const affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
	for name, test := range map[string]struct {
		spec  string
		found string // with the number of nodes
		lacks string // of n1
		all   int
	}{
		"Nothing":       {"", "", "", 2},
		"NodeSelector":  {"nodeSelector: {kernel: '6', amx: 'true'}", "amx=true 0; kernel=6 1", "label amx is missing", 0},
		"AnotherValue":  {"nodeSelector: {kernel: '7'}", "kernel=7 1", `label kernel is "6"`, 1},
		"OneTerm":       {affinity + "[{matchExpressions: [{key: kernel, operator: Gt, values: ['6']}, {key: avx, operator: DoesNotExist}]}]}}}", "kernel>6 1; !avx 1", `label kernel is "6"; label avx is "true"`, 1},
		"OneOfTwoTerms": {affinity + "[{matchExpressions: [{key: avx, operator: Exists}]}, {matchExpressions: [{key: kernel, operator: In, values: ['7', '8']}]}]}}}", "avx or kernel in (7,8) 2", "", 2},
		"AbsentIsNotIn": {affinity + "[{matchExpressions: [{key: amx, operator: NotIn, values: ['true']}]}]}}}", "amx notin (true) 2", "", 2},
		"NameOfNode":    {affinity + "[{matchFields: [{key: metadata.name, operator: In, values: [" + long + "]}]}]}}}", "metadata.name in (" + long + ") 1", "its name is n1", 1},
		"EmptyTerm":     {affinity + "[{}]}}}", "a node selector term without expressions 0", "a node selector term without expressions, which no node meets", 0},
		"EmptyTermToo":  {affinity + "[{}, {matchExpressions: [{key: avx, operator: Exists}]}]}}}", "avx 1", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var spec corev1.PodSpec
			if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			of, err := podlabels.Of(&spec)
			if err != nil {
				t.Fatal(err)
			}
			all := podlabels.Count(of, slices.Values(nodes))
			var found, lacks []string
			for i := range of {
				found = append(found, of[i].Text+" "+string(rune('0'+of[i].Nodes)))
				if why := of[i].Lacks(nodes[0]); why != "" {
					lacks = append(lacks, why)
				}
			}
			if got := strings.Join(found, "; "); got != test.found {
				t.Errorf("it requires %q, want %q", got, test.found)
			}
			if got := strings.Join(lacks, "; "); got != test.lacks {
				t.Errorf("n1 lacks %q, want %q", got, test.lacks)
			}
			if all != test.all {
				t.Errorf("%d nodes meet all, want %d", all, test.all)
			}
		})
	}
}

// TestErrorsOfRequirements: the API server rejects them, and a file can have them.
func TestErrorsOfRequirements(t *testing.T) {
	for spec, want := range map[string]string{
		"nodeSelector: {a b: c}": "spec.nodeSelector[a b]: ",
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: in}]}]}}}": `nodeSelectorTerms[0].matchExpressions[0]: unknown operator "in"`,
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: name, operator: In}]}]}}}":   `nodeSelectorTerms[0].matchFields[0]: invalid field "name"`,
	} {
		var pod corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(spec), &pod); err != nil {
			t.Fatal(err)
		}
		if _, err := podlabels.Of(&pod); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", spec, err, want)
		}
	}
}

// TestResourcesAreThoseThatTheSchedulerReserves: sums over containers and sidecars, the largest init container, and the pod as a whole.
func TestResourcesAreThoseThatTheSchedulerReserves(t *testing.T) {
	for spec, want := range map[string]string{
		"containers: [{resources: {requests: {cpu: 500m}}}, {resources: {requests: {cpu: 1}}}]":                                                                          "cpu: 1500m",
		"containers: [{resources: {requests: {cpu: 1}}}]\ninitContainers: [{resources: {requests: {cpu: 3, memory: 1Gi}}}]":                                              "cpu: 3; memory: 1Gi",
		"containers: [{resources: {requests: {cpu: 1}}}]\ninitContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 2}}}]": "cpu: 3",
		"containers: [{resources: {requests: {cpu: 1}}}]\nresources: {requests: {cpu: 4}}\noverhead: {cpu: 250m}":                                                        "cpu: 4250m",
		"containers: [{resources: {requests: {cpu: 0}}}]":                                                                                                                "",
	} {
		var pod corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(spec), &pod); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range podlabels.Resources(&pod) {
			got = append(got, r.Text)
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: got %q, want %q", spec, text, want)
		}
	}
}
