package baselines

import (
	"fmt"
	"io"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	judged "github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/review"
)

// Compile compiles a baseline. If the controller does not accept it, it prints why and returns nil.
func Compile(w *world.World, notes io.Writer, b *assayv1alpha1.NodeBaseline) *judged.Baseline {
	found := review.Review(b, Reviewed(w))
	for _, e := range found.Errors {
		fmt.Fprintf(notes, "note: NodeBaseline %s is left out: %s\n", clip.Printable(b.Name), clip.Printable(e.Error()))
	}
	return found.Baseline
}

// Trees returns the trees of the baselines that have levels. It prints which of them the controller does not accept.
func Trees(w *world.World, notes io.Writer, list []assayv1alpha1.NodeBaseline) []*Tree {
	out := []*Tree{}
	for i := range list {
		if len(list[i].Spec.Levels) == 0 {
			continue
		}
		if found := Compile(w, notes, &list[i]); found != nil {
			out = append(out, NewTree(list[i].Name, found, w.Fleet.Baseline(found)))
		}
	}
	return out
}

// Reviewed returns the knowledge with which the controller reviews baselines.
func Reviewed(w *world.World) review.Known {
	known := review.Known{Rules: w.Limits}
	known.Rules.DefaultScope = "" // scopes only apply to rules
	return known
}
