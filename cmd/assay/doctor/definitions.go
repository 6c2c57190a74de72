package doctor

import (
	"context"
	"fmt"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/internal/assembly/schema/fields"
	"github.com/assay-project/assay/rules/clip"
)

// definitions compares the CustomResourceDefinitions of the cluster with those of this version.
func (e *examination) definitions(ctx context.Context) {
	const check = "definitions"
	const upgrade = "Upgrade the chart with crds.install=true, or apply the definitions of this version"
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
			e.report(check, Error, fmt.Sprintf("CustomResourceDefinition %s does not exist", name), upgrade)
			continue
		case err != nil:
			e.report(check, Warning, fmt.Sprintf("cannot read CustomResourceDefinition %s: %v", name, err), "")
			continue
		}
		missing, err := fields.Missing(name, served, "spec", "status")
		switch {
		case err != nil:
			e.report(check, Warning, fmt.Sprintf("cannot compare CustomResourceDefinition %s: %v", name, err), "")
		case len(missing) > 0:
			e.report(check, Error, fmt.Sprintf("CustomResourceDefinition %s is of an older version or another chart: the API server drops %s", name, some(missing)), upgrade)
		default:
			same++
		}
	}
	if same == len(names) {
		e.ok(check, "%s are of this version", clip.Count(same, "CustomResourceDefinition"))
	}
}
