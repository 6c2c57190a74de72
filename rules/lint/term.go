package lint

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// term warns about one term of a matcher.
func (l *linter) term(at place, r *nfdv1alpha1.Rule, t *nfdv1alpha1.FeatureMatcherTerm) {
	name := strings.ToLower(t.Feature)
	l.feature(at, name)
	f := dictionary.Find(name)
	switch {
	case t.MatchExpressions != nil || t.MatchName != nil:
	case strings.Contains(r.LabelsTemplate+r.VarsTemplate, "."+name):
		l.advise(at.path(), warning.Suspicious, at.fix(probablyMeant, warning.Edit{Path: append(at.steps(), "matchExpressions"), Value: struct{}{}}),
			"a term without matchExpressions asks only whether there is %s, and gives the template nothing: write matchExpressions: {} for all elements", t.Feature)
	default:
		// The API server drops unknown fields, so the author may have written more.
		l.warn(at.path(), warning.Suspicious, "matches every node that has %s; is matchExpressions misspelled?", t.Feature)
	}
	if t.MatchName != nil && f != nil && !f.Is(dictionary.Flags) && t.MatchName.Op == nfdv1alpha1.MatchDoesNotExist {
		l.warn(at.path().Child("matchName"), warning.Suspicious,
			"DoesNotExist never matches in matchName, which sees only the names that there are; matchExpressions can ask whether one is missing")
	}
	if t.MatchExpressions == nil {
		return
	}
	exprs := *t.MatchExpressions
	if len(exprs) == 0 && t.MatchName == nil && !f.Is(dictionary.Instances) && r.LabelsTemplate == "" && r.VarsTemplate == "" &&
		r.LabelsTemplateFrom == nil && r.VarsTemplateFrom == nil {
		// The API server drops expressions that are null; without them, the term matches everything.
		l.warn(at.path().Child("matchExpressions"), warning.Suspicious, "is empty and matches any %s; is an expression missing?", t.Feature)
	}
	for _, key := range facts.SortedKeys(exprs) {
		if e := exprs[key]; e != nil {
			at.expression, at.key = true, key
			if f != nil {
				l.key(at, f, exprs)
				l.expression(at, f, key, exprs)
			}
		}
	}
	at.expression, at.key = false, ""
	l.parts(at, f, exprs)
	l.none(at, f, r, t)
}

// feature warns about a feature that no source publishes.
func (l *linter) feature(at place, name string) {
	if Known(name) {
		return
	}
	path := at.path().Child("feature")
	domain, _, dotted := strings.Cut(name, ".")
	if near := dictionary.Nearest(name, dictionary.Names()); near != "" {
		at.expression = false
		l.advise(path, warning.Suspicious, at.fix(probablyMeant, warning.Edit{Path: append(at.steps(), "feature"), Value: near}),
			"no source publishes %s; did you mean %s?", name, near)
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

// key warns about the name of an element in an expression.
func (l *linter) key(at place, f *dictionary.Feature, all nfdv1alpha1.MatchExpressionSet) {
	before := len(l.out)
	near := l.element(at.path, f, at.key)
	if _, taken := all[near]; len(l.out) > before && near != "" && !taken {
		l.out[before].Fix = at.fix(probablyMeant, warning.Edit{Path: at.steps(), Name: near})
	}
}

// element warns about an element that the feature cannot have, or that is similar to one that it has. It returns the name that the
// warning proposes, or "".
func (l *linter) element(path func() *field.Path, f *dictionary.Feature, key string) string {
	if f.Knows(key) {
		return ""
	}
	near := dictionary.Nearest(key, f.ElementNames())
	right := dictionary.Instead(f.Wrong, key)
	switch {
	case strings.HasPrefix(right, f.Name+".") || right != "" && f.Knows(right):
		l.warn(path(), warning.Suspicious, "%s has no %s; did you mean %s?", f.Name, key, right)
		return right
	case right != "":
		l.warn(path(), warning.Suspicious, "%s has no %s; did you mean %s?", f.Name, key, right)
	case f.Name == "cpu.cpuid" && (near == "" || !dictionary.Typo(key, near)):
		if family := familyOf(key); family != "" {
			l.warn(path(), warning.Suspicious, "%s has no %s; did you mean one of %s?", f.Name, key, family)
		}
	case near != "" && f.Any() && !dictionary.Typo(key, near):
	case near != "":
		l.warn(path(), warning.Suspicious, "%s has no %s; did you mean %s?", f.Name, key, near)
		return near
	case !f.Any():
		l.warn(path(), warning.Suspicious, "%s has no %s; it has %s", f.Name, key, strings.Join(f.ElementNames(), ", "))
	}
	return ""
}

// reference warns about a reference to what does not exist. ref is the reference without its @, and text contains it.
func (l *linter) reference(at spot, text, ref string) {
	domain, rest, _ := strings.Cut(ref, ".")
	feature, element, ok := strings.Cut(rest, ".")
	if !ok {
		return // Compile reports the error
	}
	name := domain + "." + feature
	if f := dictionary.Find(strings.ToLower(name)); f != nil {
		before := len(l.out)
		switch attributes := f.Is(dictionary.Attributes); {
		case attributes:
			l.element(func() *field.Path { return at.path }, f, element)
		case f.Is(dictionary.Instances) && !l.counted(at, text, "@"+ref, f, element):
			l.first(at, text, "@"+ref, f, element)
		}
		if to := "@" + f.Name + "." + element; f.Name != name && len(l.out) == before {
			l.advise(at.path, warning.Suspicious, at.refer(text, "@"+ref, to), "@ values are looked up as they are written; write %s", to)
		}
		return
	}
	// cpu-security.sgx.enabled, as in NFD's label, means cpu.security.sgx.enabled.
	if d, x, ok := strings.Cut(domain, "-"); ok {
		if f := dictionary.Find(d + "." + x); f != nil && f.Knows(rest) {
			l.warn(at.path, warning.Defect, "did you mean @%s.%s.%s? No source publishes %s", d, x, rest, name)
			return
		}
	}
	if near := dictionary.Nearest(name, dictionary.Names()); near != "" {
		l.warn(at.path, warning.Defect, "did you mean @%s.%s? No source publishes %s", near, element, name)
	}
}

// id warns about PCI and USB IDs in a form that the kernel never writes.
func (l *linter) id(at place, name, key string, width int, all nfdv1alpha1.MatchExpressionSet) {
	for i, v := range all[key].Value {
		lower := strings.ToLower(v)
		bare := strings.TrimPrefix(lower, "0x")
		right := pad(bare, width)
		switch {
		case v == dictionary.Unknown: // an attribute that could not be read
		case !isHex(bare):
			l.warn(at.value(i), warning.Suspicious, "invalid id %q: the kernel writes %d hexadecimal digits in lower case, such as %s", v, width, "10de"[4-width:])
		case bare != lower:
			l.replace(at, i, right, "the kernel writes ids without 0x: %q", right)
		case len(bare) != width && name == "pci.device" && key == "class" && len(bare) == 6:
			l.replace(at, i, bare[:4], "a class has %d digits here, without the programming interface: %q", width, bare[:4])
		case name == "usb.device" && key == "class" && len(strings.TrimLeft(bare, "0")) > width:
			l.warn(at.value(i), warning.Suspicious, "a class of USB devices has %d digits, and %q looks like a product; did you mean device?", width, v)
		case len(bare) > width:
			l.warn(at.value(i), warning.Suspicious, "an id has %d digits, and %q has %d", width, v, len(bare))
		case len(bare) != width:
			l.replace(at, i, right, "an id has %d digits: did you mean %q?", width, right)
		case lower != v:
			l.replace(at, i, lower, "the kernel writes ids in lower case: %q", lower)
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
