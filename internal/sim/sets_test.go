package sim

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

const (
	setsPath   = "/apis/assay.dev/v1alpha1/namespaces/" + namespace + "/nodefeaturesets"
	configPath = "/api/v1/namespaces/" + namespace + "/configmaps"
)

// padding is added to the facts that publishers share, which otherwise publish small features in the NodeFeature.
var padding = func() map[string]string {
	out := map[string]string{}
	for i := range 8 {
		out[fmt.Sprintf("pad%d", i)] = strings.Repeat("x", 160)
	}
	return out
}()

// announceSets is what a controller does that reads NodeFeatureSets. Otherwise publishers would take minutes to notice.
func (w *world) announceSets() {
	w.do("install", http.MethodPost, configPath, object{"metadata": object{
		"name": assayv1alpha1.FeatureSetMarker, "annotations": object{assayv1alpha1.FeatureSetFormatAnnotation: featureset.Version},
	}})
}

// content returns the features of a NodeFeatureSet if they are what its name says.
func content(set object) (features object, ok bool) {
	var typed assayv1alpha1.NodeFeatureSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set, &typed); err != nil {
		panic(err)
	}
	return below(below(set, "spec"), "features"), featureset.Verify(typed.Name, &typed.Spec.Features) == nil
}

// expectSet remembers the content of the set with which a publisher will publish facts. It may name a set that another client created.
func (w *world) expectSet(facts map[string]string) {
	name, err := featureset.Name(&nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: facts}}})
	if err != nil {
		w.violate("name of a set: %v", err)
	}
	elements := object{}
	for k, v := range facts {
		elements[k] = v
	}
	w.contents[name] = object{"attributes": object{"test.attr": object{"elements": elements}}}
}

// noteSet remembers the content of a set. Sets with the same name have the same content.
func (w *world) noteSet(change apiserver.Change) {
	if features, ok := content(change.New); ok {
		w.contents[below(change.New, "metadata")["name"].(string)] = features
	}
}

// named returns the sets that a NodeFeature names.
func named(feature object) (names []string) {
	list, _ := below(feature, "spec")["featureSets"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}

// resolved returns the features of a NodeFeature with its encoded instances and those of the sets that it names.
func (w *world) resolved(feature object) object {
	features := below(below(feature, "spec"), "features")
	names, more := named(feature), encoded(feature)
	if len(names) == 0 && more == nil {
		return features
	}
	instances := maps.Clone(more)
	if instances == nil {
		instances = object{}
	}
	maps.Copy(instances, below(features, "instances"))
	attributes := maps.Clone(below(features, "attributes"))
	for _, name := range names {
		for k, v := range below(w.contents[name], "attributes") {
			if _, inline := attributes[k]; !inline {
				attributes[k] = v
			}
		}
	}
	return object{"attributes": attributes, "flags": below(features, "flags"), "instances": instances}
}

// complete reports whether a process has all sets that NodeFeatures name. While it lacks one, it uses older features of their nodes.
func (c *checker) complete(p *program) bool {
	exist := map[string]bool{}
	for _, set := range c.w.server.List("nodefeaturesets") {
		exist[below(set, "metadata")["name"].(string)] = c.right(set)
	}
	wanted := false
	for _, f := range c.w.server.List("nodefeatures") {
		for _, name := range named(f) {
			if wanted = true; !exist[name] {
				return false
			}
		}
	}
	return !wanted || slices.ContainsFunc(p.client.Watches(), func(w *apiserver.Watch) bool {
		resource, at := w.At()
		return resource == "nodefeaturesets" && !w.Initial() && at == c.w.server.Revision()
	})
}

// right reports whether the content of a set is what its name says. It cannot change.
func (c *checker) right(set object) bool {
	uid := below(set, "metadata")["uid"].(string)
	is, known := c.sets[uid]
	if !known {
		_, is = content(set)
		c.sets[uid] = is
	}
	return is
}

// deleteSet deletes a set that nodes may use, or replaces it by one with other features.
func (w *world) deleteSet() {
	list := w.server.List("nodefeaturesets")
	if len(list) == 0 {
		return
	}
	name := below(one(w.tape, list...), "metadata")["name"].(string)
	w.tell("user deletes NodeFeatureSet %s", name)
	w.do("user", http.MethodDelete, setsPath+"/"+name, nil)
	if w.n(3) == 2 {
		w.tell("another client creates NodeFeatureSet %s with other features", name)
		w.do("other", http.MethodPost, setsPath, object{
			"metadata": object{"name": name},
			"spec":     object{"features": object{"attributes": object{"test.attr": object{"elements": object{"a0": "9"}}}}},
		})
	}
}

// The features of a deleted NodeFeature that names sets were held without those of the sets, so that its labels went at once (found by
// seed 113).
func TestLabelsFromSetsStayForTheGracePeriod(t *testing.T) {
	for name, missing := range map[string]bool{"Complete": false, "SetIsMissing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&tape{}, logr.Discard())
				defer w.end()
				set := w.bootWithSet(t)
				labeled := func() bool { return w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"r0"] != "" }
				if !labeled() {
					t.Fatalf("the label is missing: %s", strings.Join(w.story, "\n"))
				}
				if missing {
					w.do("user", http.MethodDelete, setsPath+"/"+set, nil)
					w.drain(time.Minute)
				}
				w.deleteFeature("n0")
				w.drain(5 * time.Minute)
				if !labeled() || len(w.violations) > 0 {
					t.Errorf("the label was removed: %v", w.violations)
				}
			})
		})
	}
}

// bootWithSet boots the programs after it has moved the facts of n0 to a NodeFeatureSet, without a publisher that would create it again.
func (w *world) bootWithSet(t *testing.T) (name string) {
	t.Helper()
	w.expectSet(map[string]string{"a0": "1"})
	for name = range w.contents {
		w.do("worker", http.MethodPost, setsPath, object{"metadata": object{"name": name}, "spec": object{"features": w.contents[name]}})
	}
	w.do("worker", http.MethodPatch, featuresPath+"/n0", object{"spec": object{
		"features": object{"attributes": object{"test.attr": nil}}, "featureSets": []any{name},
	}})
	w.boot()
	w.drain(time.Minute)
	return name
}

// A node whose set was missing became unready when the controller was restarted (found by seed 174).
func TestANodeStaysReadyWhileItsSetIsMissingAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		set := w.bootWithSet(t)
		w.do("user", http.MethodDelete, setsPath+"/"+set, nil)
		w.stop(w.programs[0])
		w.boot()
		w.drain(time.Minute)
		if status, message := readyOf(w.server.Get("nodes", "", "n0")); status != "True" || len(w.violations) > 0 {
			t.Errorf("FeaturesReady is %s: %s; %v", status, message, w.violations)
		}
	})
}

// The request to create a missing set was never withdrawn if the cache did not show it yet when the set was there again: the worker searched for
// the set every few minutes, without end (found by seed 82115).
func TestARequestForASetIsWithdrawnAlthoughTheCacheIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		set := w.bootWithSet(t)
		requested := func() bool {
			annotations, _ := below(w.server.Get("nodefeatures", namespace, "n0"), "metadata")["annotations"].(object)
			return annotations[assayv1alpha1.MissingFeatureSetsAnnotation] != nil
		}
		w.do("user", http.MethodDelete, setsPath+"/"+set, nil)
		for end := time.Now().Add(time.Minute); !requested(); w.drain(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the set is not requested")
			}
			for _, watch := range w.programs[0].client.Watches() {
				if watch.String() == "nodefeatures" {
					watch.End(errors.New("connection reset by peer"))
				}
			}
		}
		w.do("worker", http.MethodPost, setsPath, object{"metadata": object{"name": set}, "spec": object{"features": w.contents[set]}})
		w.drain(quiet)
		if requested() || len(w.violations) > 0 {
			t.Errorf("the set is requested: %t; %v", requested(), w.violations)
		}
	})
}
