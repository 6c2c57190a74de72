package explanation

import (
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/rules/keys"
)

// is reports whether a key has a name, which may omit the default namespace and the effect of a taint.
func (e *Explanation) is(k written.Key, name string) bool {
	short := k.Key
	if k.Kind == keys.Taint {
		short, _, _ = strings.Cut(k.Key, ":")
	}
	return k.Key == name || short == name || short == e.world.Limits.Keys.Qualify(name)
}

func (e *Explanation) suggest(name string) string {
	known := e.program.KeyNames()
	for g := range e.outcome.Given() {
		known = append(known, g.Key)
	}
	return cli.DidYouMean(e.world.Limits.Keys.Qualify(name), known)
}
