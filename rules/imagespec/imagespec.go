// Package imagespec reads the compatibility of a container image with nodes: the layer of an artifact that refers to the image, in the
// format v1alpha1 of Node Feature Discovery.
//
// The format defines rules in sets, and leaves open what they mean together. Here, a set is met if all of its rules match, and an image
// fits a node if one set is met or if there are none. The weight ranks the sets that are met. A rule sees the vars of earlier rules of
// its set, and nothing else that rules produce.
package imagespec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/yamltree"
)

// Names of the format.
const (
	// ArtifactType is the type of the artifact, an OCI image manifest whose subject is the image.
	ArtifactType = "application/vnd.nfd.image-compatibility.v1alpha1"
	// LayerType is the media type of its only layer, which Parse reads.
	LayerType = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"
	// Version is the version of the layer.
	Version = "v1alpha1"
)

// Meaning explains a verdict. Every output that shows one contains it, because the format leaves it open.
const Meaning = "a set is met if all of its rules match; the image fits a node if one set is met"

// Limits on the layer, which comes from a registry and may be any client's.
const (
	// MaxBytes is the maximum size of the layer. A set for one device takes about 500 bytes.
	MaxBytes = 256 << 10
	// maxNodes is the maximum number of YAML nodes after aliases are expanded: more than a layer without aliases can have.
	maxNodes = MaxBytes / 2
	// MaxSets is the maximum number of sets: ways in which the same image runs.
	MaxSets = 16
	// MaxRules is the maximum number of rules in all sets together.
	MaxRules = 64
	// maxNesting is the maximum depth of nested YAML nodes; the format has ten levels.
	maxNesting = 32
	// maxBrackets is the maximum number of unclosed brackets: those of the format, and those in regular expressions and comments.
	maxBrackets = 500
)

var limits = yamltree.Options{Bytes: MaxBytes, Nodes: maxNodes, Depth: maxNesting, Brackets: maxBrackets, Documents: 1}

// Spec is the content of the layer.
type Spec struct {
	Version         string          `json:"version"`
	Compatibilities []Compatibility `json:"compatibilities"`
}

// Compatibility is one set of rules.
type Compatibility struct {
	// Rules are the rules of the set, in the form of a NodeFeatureGroup.
	Rules []nfdv1alpha1.GroupRule `json:"rules"`
	// Weight ranks the sets that a node meets, the highest first.
	Weight int `json:"weight,omitempty"`
	// Tag is a name by which users select sets. Several sets may have it.
	Tag string `json:"tag,omitempty"`
	// Description is for people.
	Description string `json:"description,omitempty"`
}

// Document is a layer that was read.
type Document struct {
	// File is the text, for messages.
	File *manifest.File
	// Spec is the content, without the fields that could not be read.
	Spec Spec
	// Sets are the compiled sets in the order of the Spec. They are nil if there are errors among the Problems.
	Sets []*Set
	// Problems are sorted by position.
	Problems []manifest.Problem
}

// Set is a compiled set. It is immutable and safe for concurrent use.
type Set struct {
	Compatibility
	// Index is the position among the sets of the document.
	Index int

	program *rules.Program
}

// Title returns the name of the set for messages: its number, counted from 1, with its tag and description.
func (s *Set) Title() string {
	out := fmt.Sprintf("set %d", s.Index+1)
	if s.Tag != "" {
		out += " (" + s.Tag + ")"
	}
	if s.Description != "" {
		out += ", " + s.Description
	}
	return out
}

// Parse reads and reviews a layer. name is its name in messages. known holds the settings for compiling rules, and what is known of a
// cluster. Parse always returns a Document; errors are among its Problems.
func Parse(name string, data []byte, known review.Known) *Document {
	out := &Document{File: manifest.ParseWithin(name, data, limits)}
	out.Problems = slices.Clone(out.File.Problems)
	switch {
	case len(out.Problems) > 0:
	case len(out.File.Documents) == 0:
		out.Problems = []manifest.Problem{{
			Position: manifest.Position{Line: 1}, Severity: manifest.Error, Code: "empty", Message: "the document is empty: write version and compatibilities",
		}}
	default:
		out.read(out.File.Documents[0], known)
	}
	manifest.Sort(out.Problems)
	if out.Err() != nil {
		out.Sets = nil
	}
	return out
}

// Err returns the first error among the problems, or nil.
func (d *Document) Err() error {
	for _, p := range d.Problems {
		if p.Severity == manifest.Error {
			return fmt.Errorf("%s:%w", d.File.Name, p)
		}
	}
	return nil
}

func (d *Document) read(doc *manifest.Document, known review.Known) {
	if doc.Root.Kind != yaml.MappingNode {
		d.add(doc.Problem(manifest.Error, "type", "", "expected a map with version and compatibilities, found "+yamltree.Describe(doc.Root)))
		return
	}
	d.add(doc.Decode(&d.Spec)...)
	if v := d.Spec.Version; v != Version && !doc.Suspect("version") {
		text := fmt.Sprintf("unsupported version %q: write %s", v, Version)
		if v == "" {
			text = "version is missing: write " + Version
		}
		d.add(doc.Problem(manifest.Error, "version", "version", text))
	}
	sets := d.Spec.Compatibilities
	if len(sets) == 0 && !doc.Suspect("compatibilities") {
		d.add(doc.Problem(manifest.Warning, "suspicious", "compatibilities", "there are no sets, so the image fits every node"))
	}
	if len(sets) > MaxSets {
		d.add(doc.Problem(manifest.Error, "limit", "compatibilities", fmt.Sprintf("%d sets: at most %d are allowed", len(sets), MaxSets)))
		return
	}
	if n := d.countRules(); n > MaxRules {
		d.add(doc.Problem(manifest.Error, "limit", "compatibilities", fmt.Sprintf("%d rules in all sets: at most %d are allowed", n, MaxRules)))
		return
	}
	room := rules.MaxRequirementSize
	for i := range sets {
		d.set(doc, i, known, &room)
	}
}

func (d *Document) countRules() (n int) {
	for i := range d.Spec.Compatibilities {
		n += len(d.Spec.Compatibilities[i].Rules)
	}
	return n
}

func (d *Document) add(list ...manifest.Problem) { d.Problems = append(d.Problems, list...) }

// set compiles one set, as the rules of a NodeFeatureGroup. room is the compiled size that is left to it and to the sets after it.
func (d *Document) set(doc *manifest.Document, i int, known review.Known, room *int) {
	in := d.Spec.Compatibilities[i]
	at := fmt.Sprintf("compatibilities[%d]", i)
	known.Rules.DefaultScope = "" // scopes only apply to rules of the cluster
	known.Rules.Room = max(1, *room)
	found := review.Review(&nfdv1alpha1.NodeFeatureGroup{Spec: nfdv1alpha1.NodeFeatureGroupSpec{Rules: in.Rules}}, known)
	*room -= found.Set.Size()
	path := func(p string) string { return at + ".rules" + strings.TrimPrefix(p, "spec.featureGroupRules") }
	for _, e := range found.Errors {
		e.Field = path(e.Field)
	}
	for i := range found.Warnings {
		found.Warnings[i].Path = path(found.Warnings[i].Path)
	}
	found.Errors = append(found.Errors, foreign(field.NewPath(at), in.Rules)...)
	found.Warnings = append(found.Warnings, lint.Together(field.NewPath(at, "rules"), review.GroupRules(
		&nfdv1alpha1.NodeFeatureGroup{Spec: nfdv1alpha1.NodeFeatureGroupSpec{Rules: in.Rules}}).Rules)...)
	d.add(review.Problems(doc, found)...)
	if len(in.Rules) == 0 && !doc.Suspect(at+".rules") {
		d.add(doc.Problem(manifest.Warning, "suspicious", at, "the set has no rules, so every node meets it"))
	}
	d.Sets = append(d.Sets, &Set{Compatibility: in, Index: i, program: rules.Link(known.Rules, found.Set)})
}

// foreign returns an error for each term that reads outputs of rules that the set does not have: those of the cluster are not the
// business of an image.
func foreign(set *field.Path, list []nfdv1alpha1.GroupRule) (errs field.ErrorList) {
	var vars []string
	open := false // a template may set any name
	for i := range list {
		check := func(path *field.Path, terms nfdv1alpha1.FeatureMatcher) {
			for j := range terms {
				if !strings.EqualFold(terms[j].Feature, nfdv1alpha1.RuleMatchedFeature) {
					continue
				}
				at := path.Index(j)
				if len(vars) == 0 && !open {
					errs = append(errs, field.Forbidden(at.Child("feature"), nfdv1alpha1.RuleMatchedFeature+
						" holds the vars of earlier rules of the set only, and they have none: match features of the node"))
				}
				if terms[j].MatchExpressions == nil || open {
					continue
				}
				for name := range *terms[j].MatchExpressions {
					if len(vars) > 0 && !slices.Contains(vars, name) {
						errs = append(errs, field.Forbidden(at.Child("matchExpressions").Key(name),
							"no earlier rule of the set has the var "+name+": an image cannot read the outputs of the cluster's rules"))
					}
				}
			}
		}
		path := set.Child("rules").Index(i)
		check(path.Child("matchFeatures"), list[i].MatchFeatures)
		for j := range list[i].MatchAny {
			check(path.Child("matchAny").Index(j).Child("matchFeatures"), list[i].MatchAny[j].MatchFeatures)
		}
		for name := range list[i].Vars {
			vars = append(vars, name)
		}
		open = open || list[i].VarsTemplate != ""
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}
