package informer

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// SpecChanged drops updates of objects that change nothing but metadata and status. An object that is deleted and created again while
// its watch is broken is one update for an informer, and both may have generation 1: predicate.GenerationChangedPredicate drops that too.
var SpecChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}
