package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/clip"
)

// nfdDefinition is a CustomResourceDefinition that Node Feature Discovery installs too.
const nfdDefinition = "nodefeatures.nfd.k8s-sigs.io"

// definitions compares the CustomResourceDefinitions of the cluster with those of this version.
func (e *examination) definitions(ctx context.Context) {
	const check = "definitions"
	const upgrade = "Upgrade the release, or apply the definitions of this version: helm show crds charts/assay | kubectl apply --server-side --force-conflicts -f -"
	names, err := definition.Names()
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
		status, err := definition.Of(served)
		switch {
		case err != nil:
			e.report(check, Warning, fmt.Sprintf("cannot compare CustomResourceDefinition %s: %v", name, err), "")
		case status.State != definition.Whole && e.installed():
			e.report(check, Error, undefined(name, served, status), upgrade)
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

// undefined says what is wrong with a definition, and who has written it.
func undefined(name string, served *unstructured.Unstructured, status definition.Status) string {
	by := ""
	if writer := definition.LastWriter(served.GetManagedFields()); writer != "" {
		by = ", last written by " + writer
	}
	switch status.State {
	case definition.Older:
		return fmt.Sprintf("CustomResourceDefinition %s is of an older version of Assay%s: the API server drops %s", name, by, some(status.Missing))
	case definition.Absent:
		return fmt.Sprintf("CustomResourceDefinition %s is being deleted with all its objects; what they gave to Nodes stays", name)
	}
	return fmt.Sprintf("CustomResourceDefinition %s is not Assay's%s: the API server drops %s; what was accepted before stays as it is, and what may have lost fields waits",
		name, by, some(status.Missing))
}
