package review

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/warning"
)

// Limits on one NodeFeature. A large host has about 10,000 kernel options and a few thousand virtual functions.
const (
	// maxFeatureBytes is the maximum size of the spec in bytes. etcd accepts 1.5 MiB, which includes metadata.
	maxFeatureBytes = 1 << 20
	// maxFeatures is the maximum number of features of one type.
	maxFeatures = 512
	// maxElements is the maximum number of names in a set of flags or attributes.
	maxElements = 16384
	// maxInstances is the maximum number of instances in a list.
	maxInstances = 8192
	// maxInstanceAttributes is the maximum number of attributes of an instance.
	maxInstanceAttributes = 128
	// maxFeatureLabels is the maximum number of labels. All labels of a node are sent to all watchers of the node.
	maxFeatureLabels = 512
	// maxNameLen is the maximum length of the name of a feature or element. Names of files and devices have at most 255 bytes.
	maxNameLen = 317 // a label key: a namespace of 253 bytes, a slash, and a name of 63 bytes
	// maxElementLen is the maximum length of a value: a page, which is the maximum for files in sysfs.
	maxElementLen = 4096
	// maxNameErrors is the maximum number of invalid names that are reported per object.
	maxNameErrors = 20
)

// feature reviews a NodeFeature.
func (k *Known) feature(object *nfdv1alpha1.NodeFeature) Findings {
	f := Findings{}
	switch node := object.Labels[nfdv1alpha1.NodeNameLabel]; {
	case node == "":
		f.Warn("metadata.labels", warning.Defect, "label %s is missing; the controller ignores this object", nfdv1alpha1.NodeNameLabel)
	case k.lacksNode(node):
		f.Warn(field.NewPath("metadata", "labels").Key(nfdv1alpha1.NodeNameLabel).String(), warning.Unlikely, "the cluster has no Node %q; until it has, this object has no effect", node)
	}
	c := &contents{}
	c.check(object)
	f.Errors = c.errs
	features, own := field.NewPath("spec", "features"), k.own(object)
	names := func(path *field.Path, list []string) { k.names(&f, path, list, own) }
	names(features.Child("flags"), facts.SortedKeys(object.Spec.Features.Flags))
	names(features.Child("attributes"), facts.SortedKeys(object.Spec.Features.Attributes))
	names(features.Child("instances"), facts.SortedKeys(object.Spec.Features.Instances))
	names(field.NewPath("spec", "encodedInstances"), facts.SortedKeys(c.encoded))
	k.labels(&f, field.NewPath("spec", "labels"), object.Spec.Labels)
	return f
}

// lacksNode reports whether it is known that the cluster has no Node of this name.
func (k *Known) lacksNode(name string) bool {
	if k.HasNode == nil {
		return false
	}
	has, known := k.HasNode(name)
	return known && !has
}

// own reports whether an object can be that of its node's worker.
func (k *Known) own(object *nfdv1alpha1.NodeFeature) bool {
	p := gather.Describe(object)
	if k.Namespace == "" {
		p.Namespace = "" // it is unknown in which one the workers publish
	}
	return gather.Policy{Namespace: k.Namespace}.Own(p)
}

// names warns about features whose names rules cannot read, and about those that do not count from this object.
func (k *Known) names(f *Findings, path *field.Path, features []string, own bool) {
	for _, name := range features {
		switch {
		case facts.IsDevices(strings.ToLower(name)):
			f.Warn(path.Key(shorten(name)).String(), warning.Defect, "the controller ignores this feature: it reads %s* from ResourceSlices", facts.DevicePrefix)
		case !own && nfdv1alpha1.DescribesPublication(name):
			f.Warn(path.Key(shorten(name)).String(), warning.Defect,
				"the controller ignores this feature here: it counts only in the NodeFeature of the node's own worker, which has the name of the node")
		case name == "" || strings.EqualFold(name, nfdv1alpha1.RuleMatchedFeature):
		case strings.Count(name, ".") != 1:
			f.Warn(path.Key(shorten(name)).String(), warning.Unlikely, "the name of a feature is DOMAIN.FEATURE with one dot; templates cannot read this one")
		case name != strings.ToLower(name):
			f.Warn(path.Key(shorten(name)).String(), warning.Unlikely, "matchFeatures reads names in lower case and does not find this one")
		}
	}
}

// labels warns about labels that the controller does not write.
func (k *Known) labels(f *Findings, path *field.Path, labels map[string]string) {
	for _, name := range facts.SortedKeys(labels) {
		if strings.HasPrefix(labels[name], "@") || len(name) > maxNameLen {
			continue
		}
		if verdict := k.Rules.Keys.Label(name, labels[name]); !verdict.OK() {
			f.Warn(path.Key(name).String(), warning.Defect, "%s", verdict.Message())
		}
	}
}

// entryBytes is the number of additional bytes of an entry of a map in JSON: quotes, colon and comma.
const entryBytes = 6

// bytes returns the size of a spec as JSON, not counting escapes.
func bytes(spec *nfdv1alpha1.NodeFeatureSpec) int {
	n := 0
	count := func(values map[string]string) {
		for k, v := range values {
			n += len(k) + len(v) + entryBytes
		}
	}
	for _, set := range spec.Features.Flags {
		for k := range set.Elements {
			n += len(k) + entryBytes
		}
	}
	for _, set := range spec.Features.Attributes {
		count(set.Elements)
	}
	for _, set := range spec.Features.Instances {
		for i := range set.Elements {
			count(set.Elements[i].Attributes)
		}
	}
	count(spec.Labels)
	return n + len(spec.EncodedInstances)
}

// contents collects the errors of published features.
type contents struct {
	errs    field.ErrorList
	names   int                            // number of invalid names so far
	encoded map[string][]map[string]string // decoded from spec.encodedInstances
}

func (c *contents) add(e ...*field.Error) { c.errs = append(c.errs, e...) }

// check checks the object in sorted order, so that the order of errors is fixed.
func (c *contents) check(object *nfdv1alpha1.NodeFeature) {
	spec := field.NewPath("spec")
	if size := bytes(&object.Spec); size > maxFeatureBytes {
		c.add(field.TooLong(spec, "", maxFeatureBytes))
		c.errs[len(c.errs)-1].Detail = fmt.Sprintf(
			"%d bytes are more than the %d that one NodeFeature may have; publish in several objects, or less", size, maxFeatureBytes)
		return // further errors would be as long
	}
	f, path := &object.Spec.Features, spec.Child("features")
	c.count(path.Child("flags"), len(f.Flags), maxFeatures, "features")
	for _, name := range facts.SortedKeys(f.Flags) {
		p := c.feature(path.Child("flags"), name).Child("elements")
		if c.count(p, len(f.Flags[name].Elements), maxElements, "flags") {
			for _, e := range facts.SortedKeys(f.Flags[name].Elements) {
				c.name(p, e)
			}
		}
	}
	c.count(path.Child("attributes"), len(f.Attributes), maxFeatures, "features")
	for _, name := range facts.SortedKeys(f.Attributes) {
		p := c.feature(path.Child("attributes"), name).Child("elements")
		if c.count(p, len(f.Attributes[name].Elements), maxElements, "attributes") {
			c.attributes(p, f.Attributes[name].Elements)
		}
	}
	path = path.Child("instances")
	c.count(path, len(f.Instances), maxFeatures, "features")
	for _, name := range facts.SortedKeys(f.Instances) {
		p, list := c.feature(path, name).Child("elements"), f.Instances[name].Elements
		if c.count(p, len(list), maxInstances, "instances") {
			for i := range list {
				c.instance(p.Index(i).Child("attributes"), list[i].Attributes)
			}
		}
	}
	c.decode(spec.Child("encodedInstances"), object.Spec.EncodedInstances)
	c.labels(spec.Child("labels"), object.Spec.Labels)
}

func (c *contents) instance(path *field.Path, attributes map[string]string) {
	if c.count(path, len(attributes), maxInstanceAttributes, "attributes") {
		c.attributes(path, attributes)
	}
}

// decode checks the instances that are published as one string.
func (c *contents) decode(path *field.Path, encoded string) {
	if encoded == "" {
		return
	}
	if err := json.Unmarshal([]byte(encoded), &c.encoded); err != nil {
		c.add(field.Invalid(path, shorten(encoded), `must be JSON with a list of the attributes of each instance, such as {"network.virtual": [{"name": "veth0"}]}: `+err.Error()))
		return
	}
	c.count(path, len(c.encoded), maxFeatures, "features")
	for _, name := range facts.SortedKeys(c.encoded) {
		p, list := c.feature(path, name), c.encoded[name]
		if c.count(p, len(list), maxInstances, "instances") {
			for i, attributes := range list {
				c.instance(p.Index(i), attributes)
			}
		}
	}
}

// feature checks the name of a feature and returns its path.
func (c *contents) feature(path *field.Path, name string) *field.Path {
	if strings.EqualFold(name, nfdv1alpha1.RuleMatchedFeature) {
		c.add(field.Forbidden(path.Key(name), "holds the outputs of rules and cannot be published; choose another name"))
	}
	c.name(path, name)
	return path.Key(name)
}

func (c *contents) attributes(path *field.Path, elements map[string]string) {
	for _, name := range facts.SortedKeys(elements) {
		c.name(path, name)
		if n := len(elements[name]); n > maxElementLen {
			c.limited(field.Invalid(path.Key(shorten(name)), shorten(elements[name]),
				fmt.Sprintf("is %d bytes long; a value has at most %d", n, maxElementLen)))
		}
	}
}

// name checks the name of a feature, an element or an attribute. Names are written to templates, labels and terminals.
func (c *contents) name(path *field.Path, name string) {
	switch {
	case name == "":
		c.limited(field.Required(path.Key(name), "a name cannot be empty"))
	case len(name) > maxNameLen:
		c.limited(field.Invalid(path.Key(shorten(name)), shorten(name),
			fmt.Sprintf("is %d bytes long; a name has at most %d", len(name), maxNameLen)))
	case strings.IndexFunc(name, clip.Unprintable) >= 0:
		c.limited(field.Invalid(path.Key(fmt.Sprintf("%q", shorten(name))), shorten(name),
			"contains an invisible character, such as a line break or a direction mark; remove it"))
	}
}

func (c *contents) limited(e *field.Error) {
	if c.names++; c.names <= maxNameErrors {
		c.add(e)
	}
}

// count checks a number against its limit and reports whether it is within the limit.
func (c *contents) count(path *field.Path, n, limit int, what string) bool {
	if n <= limit {
		return true
	}
	e := field.TooMany(path, n, limit)
	e.Detail = fmt.Sprintf("%d %s are more than the %d that are allowed here; publish less, or in several objects", n, what, limit)
	c.add(e)
	return false
}

// labels checks the number of labels. Invalid labels are left out later without affecting the others, as in NFD.
func (c *contents) labels(path *field.Path, labels map[string]string) {
	c.count(path, len(labels), maxFeatureLabels, "labels")
	for _, key := range facts.SortedKeys(labels) {
		if len(key) > maxNameLen {
			c.limited(field.Invalid(path.Key(shorten(key)), shorten(key), validation.MaxLenError(maxNameLen)))
		}
	}
}

func shorten(s string) string { return clip.Text(s, 64) }
