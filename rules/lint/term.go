package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// term warns about one term of a matcher.
func (l *linter) term(at place, r *nfdv1alpha1.Rule, t *nfdv1alpha1.FeatureMatcherTerm) {
	name := strings.ToLower(t.Feature)
	l.feature(at, name)
	f, known := catalog[name]
	if t.MatchExpressions == nil && t.MatchName == nil {
		// The API server drops unknown fields, so the author may have written more.
		l.warn(at.path(), warning.Suspicious, "matches every node that has %s; is matchExpressions misspelled?", t.Feature)
	}
	if t.MatchName != nil && known && !f.flags && t.MatchName.Op == nfdv1alpha1.MatchDoesNotExist {
		l.warn(at.path().Child("matchName"), warning.Suspicious, "DoesNotExist never matches in matchName; write it in matchExpressions")
	}
	if t.MatchExpressions == nil {
		return
	}
	exprs := *t.MatchExpressions
	if len(exprs) == 0 && t.MatchName == nil && !f.instances && r.LabelsTemplate == "" && r.VarsTemplate == "" &&
		r.LabelsTemplateFrom == nil && r.VarsTemplateFrom == nil {
		// The API server drops expressions that are null; without them, the term matches everything.
		l.warn(at.path().Child("matchExpressions"), warning.Suspicious, "is empty and matches any %s; is an expression missing?", t.Feature)
	}
	for _, key := range facts.SortedKeys(exprs) {
		if e := exprs[key]; e != nil {
			at.expression, at.key = true, key
			if known {
				l.element(at.path, name, f, key)
			}
			l.expression(at, name, key, e)
			l.values(at, name, key, e)
			l.id(at, name, key, exprs)
		}
	}
}

// feature warns about a feature that no source publishes.
func (l *linter) feature(at place, name string) {
	if Known(name) {
		return
	}
	path := at.path().Child("feature")
	domain, _, dotted := strings.Cut(name, ".")
	if near := nearest(name, featureNames); near != "" {
		l.warn(path, warning.Suspicious, "no source publishes %s; did you mean %s?", name, near)
		return
	}
	switch {
	case !dotted && name != "":
		l.warn(path, warning.Suspicious, "%q has no dot: names of features have the form domain.feature, such as cpu.cpuid", name)
	case domain == "kubernetes" || domain == "node":
		l.warn(path, warning.Suspicious, "labels of Nodes are not features: use spec.nodeSelector")
	case ownDomains[domain]:
		l.warn(path, warning.Suspicious, "no source publishes %s; %s has %s", name, domain, strings.Join(featuresOf(domain), ", "))
	default:
		// network-sriov.capable is a label of the source network, not a feature.
		if source, _, dashed := strings.Cut(domain, "-"); dashed && ownDomains[source] {
			l.warn(path, warning.Suspicious, "%s is the name of a label; the features of %s are %s", name, source, strings.Join(featuresOf(source), ", "))
		}
	}
}

// element warns about an element that the feature cannot have, or that is similar to one that it has.
func (l *linter) element(path func() *field.Path, name string, f knownFeature, key string) {
	if slices.Contains(f.elements, key) || hasAnyPrefix(key, f.prefixes) {
		return
	}
	near := nearest(key, f.elements)
	switch {
	case name == "cpu.cpuid" && (near == "" || !sameButTypo(key, near)):
		if family := familyOf(key); family != "" {
			l.warn(path(), warning.Suspicious, "%s has no %s; did you mean one of %s?", name, key, family)
		}
	case near != "" && f.open && !sameButTypo(key, near):
	case near != "":
		l.warn(path(), warning.Suspicious, "%s has no %s; did you mean %s?", name, key, near)
	case !f.open:
		l.warn(path(), warning.Suspicious, "%s has no %s; it has %s", name, key, strings.Join(f.elements, ", "))
	}
}

// expression warns about an expression that never holds for the values that the kernel writes.
func (l *linter) expression(at place, name, key string, e *nfdv1alpha1.MatchExpression) {
	op := rules.MatchOperatorOf(e.Op)
	truth := e.Op == nfdv1alpha1.MatchIsTrue || e.Op == nfdv1alpha1.MatchIsFalse
	f := catalog[name]
	switch {
	case f.flags && op.Valued && (!f.attributes || !slices.Contains(f.valued, key)):
		l.warn(at.path(), warning.Suspicious, "%s holds names without values: %s never matches; write op: Exists", name, e.Op)
	case name == "kernel.config" && strings.HasPrefix(key, "CONFIG_"):
		l.warn(at.path(), warning.Suspicious, "options are written without CONFIG_: %s", strings.TrimPrefix(key, "CONFIG_"))
	case name == "kernel.config" && (truth || slices.Contains(e.Value, "true")):
		l.warn(at.path(), warning.Suspicious, "options are y, m or a value, never true: write op: In, value: [\"y\"]")
	case name == "kernel.loadedmodule" && strings.HasSuffix(key, ".ko"):
		l.warn(at.path(), warning.Suspicious, "modules are listed without .ko: %s", strings.ReplaceAll(strings.TrimSuffix(key, ".ko"), "-", "_"))
	case name == "kernel.loadedmodule" && strings.Contains(key, "-"):
		l.warn(at.path(), warning.Suspicious, "the kernel lists modules with underscores: %s", strings.ReplaceAll(key, "-", "_"))
	case name == "kernel.version" && key == "full" && op.Ordered && e.Type == nfdv1alpha1.TypeInteger && integers(e.Value):
		l.warn(at.path(), warning.Defect, "%s compares integers, and a kernel version is not one: add type: version", e.Op)
	case name == "storage.block" && (key == "rotational" || key == "dax") && truth:
		l.warn(at.path(), warning.Suspicious, "is 0 or 1, never true or false: write op: In, value: [\"1\"]")
	}
}

// integers reports whether all values are integers; other ones are errors, which say the same.
func integers(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { _, err := strconv.ParseInt(v, 10, 64); return err != nil })
}

// reference warns about a dynamic value without an element.
func (l *linter) reference(path *field.Path, ref string) {
	domain, rest, _ := strings.Cut(ref, ".")
	feature, element, ok := strings.Cut(rest, ".")
	if !ok {
		return // Compile reports the error
	}
	name := domain + "." + feature
	if f, ok := catalog[strings.ToLower(name)]; ok {
		switch {
		case strings.ToLower(name) != name:
			l.warn(path, warning.Suspicious, "@ values are looked up as they are written; write @%s.%s", strings.ToLower(name), element)
		case !f.attributes && f.instances && l.counted(path, name, f, element):
		case !f.attributes && f.instances:
			l.warn(path, warning.Defect, "%s", instead(name, f, element))
		case f.attributes:
			l.element(func() *field.Path { return path }, name, knownFeature{elements: append(slices.Clone(f.elements), f.valued...), prefixes: f.prefixes, open: f.open || f.flags}, element)
		}
		return
	}
	// cpu-security.sgx.enabled, as in NFD's label, means cpu.security.sgx.enabled.
	if d, x, ok := strings.Cut(domain, "-"); ok {
		if f, ok := catalog[d+"."+x]; ok && slices.Contains(f.elements, rest) {
			l.warn(path, warning.Defect, "did you mean @%s.%s.%s? No source publishes %s", d, x, rest, name)
			return
		}
	}
	if near := nearest(name, featureNames); near != "" {
		l.warn(path, warning.Defect, "did you mean @%s.%s? No source publishes %s", near, element, name)
	}
}

// id warns about PCI and USB IDs in a form that the kernel never writes.
func (l *linter) id(at place, name, key string, all nfdv1alpha1.MatchExpressionSet) {
	width := idWidth(name, key)
	e := all[key]
	if width == 0 || e.Op != nfdv1alpha1.MatchIn && e.Op != nfdv1alpha1.MatchNotIn {
		return
	}
	for i, v := range e.Value {
		lower := strings.ToLower(v)
		bare := strings.TrimPrefix(lower, "0x")
		switch {
		case !isHex(bare):
			l.warn(at.value(i), warning.Suspicious, "invalid id %q: the kernel writes %d hexadecimal digits in lower case, such as %s", v, width, "10de"[4-width:])
		case bare != lower:
			l.warn(at.value(i), warning.Suspicious, "the kernel writes ids without 0x: %q", pad(bare, width))
		case len(bare) != width && name == "pci.device" && key == "class" && len(bare) == 6:
			l.warn(at.value(i), warning.Suspicious, "a class has %d digits here, without the programming interface: %q", width, bare[:4])
		case name == "usb.device" && key == "class" && len(strings.TrimLeft(bare, "0")) > width:
			l.warn(at.value(i), warning.Suspicious, "a class of USB devices has %d digits, and %q looks like a product; did you mean device?", width, v)
		case len(bare) != width:
			l.warn(at.value(i), warning.Suspicious, "an id has %d digits: did you mean %q?", width, pad(bare, width))
		case lower != v:
			l.warn(at.value(i), warning.Suspicious, "the kernel writes ids in lower case: %q", lower)
		case name == "pci.device":
			l.misplaced(at.value(i), key, v, vendors(all))
		}
	}
}

// misplaced warns about a PCI ID in a field for another kind of ID.
func (l *linter) misplaced(path *field.Path, key, v string, vendors []string) {
	switch key {
	case "class":
		if _, ok := pciBaseClasses[v[:2]]; ok {
			return
		}
		for _, vendor := range vendors {
			if name, ok := l.device(vendor, v); ok {
				l.warn(path, warning.Suspicious, "%s:%s is %s, a device; did you mean device?", vendor, v, name)
				return
			}
		}
		l.warn(path, warning.Suspicious, "invalid class of PCI devices %s; did you mean device?", v)
	case "device", "vendor":
		if l.IDs == nil {
			return
		}
		class, ok := l.IDs.PCIClass(v)
		if !ok || !commonClass(v) {
			return
		}
		if key == "vendor" {
			if _, known := l.IDs.PCIVendor(v); !known {
				l.warn(path, warning.Suspicious, "%s is %s, a class; did you mean class?", v, class)
			}
			return
		}
		for _, vendor := range vendors {
			if _, known := l.IDs.PCIDevice(vendor, v); known {
				return
			}
		}
		if len(vendors) > 0 {
			l.warn(path, warning.Suspicious, "%s is %s, a class; did you mean class?", v, class)
		}
	}
}

func (l *linter) device(vendor, device string) (string, bool) {
	if l.IDs == nil {
		return "", false
	}
	name, ok := l.IDs.PCIDevice(vendor, device)
	if !ok {
		return "", false
	}
	if v, ok := l.IDs.PCIVendor(vendor); ok {
		name = firstWord(v) + " " + name
	}
	return name, true
}

// vendors returns the vendors that an expression set requires.
func vendors(all nfdv1alpha1.MatchExpressionSet) []string {
	if e := all["vendor"]; e != nil && e.Op == nfdv1alpha1.MatchIn {
		return e.Value
	}
	return nil
}

// commonClass reports whether the ID is a class that rules often match. Device IDs may look like other classes.
func commonClass(v string) bool {
	switch v {
	case "0100", "0104", "0106", "0107", "0108", "0200", "0207", "0280", "0300", "0302", "0380", "0b40", "1200":
		return true
	}
	return false
}

func idWidth(name, key string) int {
	switch {
	case name == "pci.device" && slices.Contains([]string{"class", "vendor", "device", "subsystem_vendor", "subsystem_device"}, key),
		name == "usb.device" && (key == "vendor" || key == "device"):
		return 4
	case name == "usb.device" && key == "class":
		return 2
	}
	return 0
}

func isHex(s string) bool {
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return s != ""
}

func pad(s string, width int) string {
	if len(s) > width {
		return s[len(s)-width:]
	}
	return fmt.Sprintf("%0*s", width, s)
}

func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	return strings.TrimSuffix(w, ",")
}
