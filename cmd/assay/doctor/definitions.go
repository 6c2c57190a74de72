package doctor

import (
	"context"
	"fmt"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
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
	e.unwhole = map[string]definition.State{}
	var problems []string
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
		case status.State != definition.Whole:
			e.unwhole[name] = status.State
			problems = append(problems, definition.Problem(served, status))
		default:
			same++
		}
	}
	if e.installed() || len(e.missing) == 0 { // otherwise they are those of Node Feature Discovery alone
		for _, problem := range problems {
			e.report(check, Error, problem, upgrade)
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

// of returns a check of the objects of a kind. While the API server drops what its definition lacks, the status among it, the objects show
// nothing but that, which is a finding.
func (e *examination) of(name string, check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if state := e.unwhole[name]; state == definition.Foreign || state == definition.Absent {
			return nil
		}
		return check(ctx)
	}
}
