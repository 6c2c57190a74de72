// Package fingerprint computes the fingerprints of pods that the tests of discovery/topology compare with, with the library that
// schedulers use.
package fingerprint

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/podfingerprint"
)

var update = flag.Bool("update", false, "write the golden file")

// golden has one line per set of pods: the fingerprint, then the pods as namespace/name.
const golden = "../../discovery/topology/testdata/fingerprints.txt"

// sets returns sets of pods: none, each order, equal names in other namespaces, the longest names, a full node, a large node.
func sets() [][]string {
	long := strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253)
	all := [][]string{
		nil,
		{"default/besteffort", "default/excl"},
		{"default/excl", "default/besteffort"},
		{"a/bc"}, {"ab/c"}, {"a/c", "b/c"}, {"a/a"}, {long},
		{"default/twice", "default/twice"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{3, 32, 33, 110} {
		var pods []string
		for range size {
			pods = append(pods, fmt.Sprintf("ns-%d/pod-%x", random.IntN(4), random.Uint64()))
		}
		all = append(all, pods)
	}
	return all
}

func TestGoldenFingerprints(t *testing.T) {
	var text strings.Builder
	for _, pods := range sets() {
		f := podfingerprint.NewFingerprint(len(pods))
		for _, p := range pods {
			namespace, name, _ := strings.Cut(p, "/")
			if err := f.Add(namespace, name); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(&text, strings.Join(append([]string{f.Sign()}, pods...), " "))
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != text.String() {
		t.Errorf("%s differs from what podfingerprint computes; go test -C hack/fingerprint . -update", golden)
	}
}
