package doctor

import (
	"context"
	"fmt"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/internal/assembly/schema/fields"
	"github.com/assay-project/assay/rules/clip"
)

// nfdDefinition is a CustomResourceDefinition that Node Feature Discovery installs too.
const nfdDefinition = "nodefeatures.nfd.k8s-sigs.io"

// definitions compares the CustomResourceDefinitions of the cluster with those of this version.
func (e *examination) definitions(ctx context.Context) {
	const check = "definitions"
	const upgrade = "Upgrade the chart with crds.install=true, or apply the definitions of this version: kubectl apply --server-side -f charts/assay/files/crds"
	names, err := fields.Names()
	if err != nil {
		e.report(check, Error, err.Error(), "")
		return
	}
	same := 0
	for _, name := range names {
		served, err := e.c.Definition(ctx, name)
		switch {
		case cluster.IsNotFound(err):
			e.missing = append(e.missing, name)
			continue
		case err != nil:
			e.report(check, Warning, fmt.Sprintf("cannot read CustomResourceDefinition %s: %v", name, err), "")
			continue
		}
		dropped, err := fields.Missing(name, served, "spec", "status")
		switch {
		case err != nil:
			e.report(check, Warning, fmt.Sprintf("cannot compare CustomResourceDefinition %s: %v", name, err), "")
		case len(dropped) > 0 && e.installed():
			e.report(check, Error, fmt.Sprintf("CustomResourceDefinition %s is of an older version or another chart: the API server drops %s", name, some(dropped)), upgrade)
		default:
			same++
		}
	}
	switch n := len(e.missing); {
	case n == 0 && same == len(names):
		e.ok(check, "%s are of this version", clip.Count(same, "CustomResourceDefinition"))
	case n == 0:
	case e.installed():
		e.report(check, Error, fmt.Sprintf("%d of %s do not exist: %s", n, clip.Count(len(names), "CustomResourceDefinition"), some(e.missing)), upgrade)
	default:
		e.report(check, Warning, fmt.Sprintf("%d of %s do not exist: %s", n, clip.Count(len(names), "CustomResourceDefinition"), some(e.missing)),
			"The chart installs them")
	}
}
