package arch

import (
	"slices"
	"strings"
	"testing"
)

// unsafePackages are the packages that may import unsafe, with the reason. Values of an API object that referred to a buffer through
// unsafe once became labels of other nodes.
var unsafePackages = map[string]string{
	Module + "/internal/worker/sandbox": "passes structures to the system calls of Landlock",
	Module + "/rules/poison":            "overwrites strings after their use, in test builds with the tag poison only",
	Module + "/internal/sim/apiserver":  "identifies maps, which are not comparable; only tests use it",
}

func TestUnsafeHasAReason(t *testing.T) {
	for path, imports := range load(t) {
		if !strings.HasPrefix(path, Module) || !slices.Contains(imports, "unsafe") {
			continue
		}
		if unsafePackages[path] == "" {
			t.Errorf("%s imports unsafe: copy instead, or add it to the list with the figure that a user notices and a test that compares it with the plain way", path)
		}
	}
}
