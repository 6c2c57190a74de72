//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// form is a kind of rule. In its YAML, which is that of the list spec.rules, NAME is a prefix of keys that no other rule has, and a word in
// angle brackets is drawn again at each place: see drawer.fill.
type form struct {
	name, rules string
	// differs are the first cells of the rows in docs/nfd-differences.md that describe how Assay differs from NFD with its default
	// settings, and strictly how it differs with nfdStrict, too.
	differs, strictly []string
}

const (
	taintRecord = "the annotation `taints` lists them in the order of rules, with each value"
	emptyName   = "a requested label with an empty name becomes"
	nameless    = "the name of a node is taken from feature data, so that it can be forged or empty"
	noEquals    = "a template line without `=`"
	emptySet    = "`matchExpressions: {}` on flags and attributes"
	notCompared = "an instance that cannot be compared"
	quantities  = "quantities (`500Gi`) as bounds of attributes in bytes"
	rpmVersions = "versions of distribution kernels (`x86_64`)"
	backRefs    = "back-references to `@` values"
	otherCase   = "`@` with another case"
	toFlag      = "`@` to a flag"
	notWritten  = "labels that may not be written are visible in it; of a conflict the later value"
	lineBreak   = "a line break in a feature begins another label"
	oneSpelling = "`labels` win over `labelsTemplate`, compared as they are written"
)

// forms has all kinds of rules.
var forms = []form{
	{name: "plain", rules: `[{name: a, labels: {NAME: <value>}, matchFeatures: [<term>]}]`},
	{name: "two terms", rules: `[{name: a, labels: {NAME: <value>, example.com/NAME: "1"}, matchFeatures: [<term>, <term>]}]`},
	{name: "any", rules: `[{name: a, labels: {NAME: <value>}, matchAny: [{matchFeatures: [<term>]}, {matchFeatures: [<term>, <term>]}]}]`},
	{name: "any and all", rules: `[{name: a, labels: {NAME: <value>}, matchAny: [{matchFeatures: [<term>]}, {matchFeatures: [<term>]}], matchFeatures: [<term>]}]`},
	{name: "no matcher", rules: `[{name: a, labels: {NAME: <value>}, labelsTemplate: "NAME-t=1"}]`},
	{name: "names", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [<names>]}]`},
	{name: "flags", rules: `[{name: a, labelsTemplate: "{{range .fleet.flag}}NAME-{{.Name}}=true\n{{end}}", matchFeatures: [{feature: fleet.flag, matchName: <name>}]}]`},
	{name: "attributes", rules: `[{name: a, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}={{.Value}}\n{{end}}", matchFeatures: [{feature: fleet.attr, matchName: <name>}]}]`},
	{name: "elements", rules: `[{name: a, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}=v{{.Value}}\n{{end}}NAME-n={{len .fleet.attr}}", ` +
		`matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}]}]`},
	{name: "devices", rules: `[{name: a, labelsTemplate: "{{range .fleet.device}}NAME-{{.slot}}={{.vendor}}\n{{end}}NAME-n={{len .fleet.device}}", ` +
		`matchFeatures: [{feature: fleet.device, matchExpressions: <devices>}]}]`},
	{name: "twice", rules: `[{name: a, labelsTemplate: "NAME-n={{len .fleet.device}}", matchFeatures: [` +
		`{feature: fleet.device, matchExpressions: <devices>}, {feature: fleet.device, matchExpressions: <devices>}]}]`},
	{name: "several types", rules: `[{name: a, labelsTemplate: "NAME-n={{len .fleet.multi}}", matchFeatures: [{feature: fleet.multi, matchExpressions: <attributes>}]}]`},
	{name: "any with template", rules: `[{name: a, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}=x{{.Value}}\n{{end}}", matchAny: [` +
		`{matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}]}, {matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}]}]}]`},
	{name: "variables", rules: `[{name: a, vars: {NAME-v: <word>}, varsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}={{.Value}}\n{{end}}", matchFeatures: [` +
		`{feature: fleet.attr, matchExpressions: <attributes>}]}, {name: b, labels: {NAME: "1", NAME-r: "@rule.matched.NAME-v"}, ` +
		`matchFeatures: [{feature: rule.matched, matchExpressions: {NAME-v: {op: In, value: [<word>, <word>]}}}]}, ` +
		`{name: c, labels: {NAME-w: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {NAME-word: <of word>}}]}]`},
	{name: "labels of others", rules: `[{name: a, labels: {NAME: <word>}, matchFeatures: [<term>]}, {name: b, labels: {NAME-b: "1"}, ` +
		`matchFeatures: [{feature: rule.matched, matchExpressions: {NAME: {op: In, value: [<word>, <word>]}}}]}]`},
	{name: "labels that are not written", rules: `[{name: a, labels: {NAME: "a b"}, matchFeatures: [<term>]}, {name: b, labels: {NAME-b: "1"}, ` +
		`matchFeatures: [{feature: rule.matched, matchExpressions: {NAME: {op: Exists}}}]}]`, differs: []string{notWritten}, strictly: []string{notWritten}},
	{name: "references", rules: `[{name: a, labels: {NAME-a: "@fleet.attr.<element>", NAME-b: "@fleet.attr.nothing", NAME-c: "@fleet.kernel.full", ` +
		`NAME-d: "@fleet.device.vendor", NAME-e: "@rule.matched.NAME-later"}, matchFeatures: [<term>]}, {name: b, vars: {NAME-later: <word>}, matchFeatures: [<term>]}]`},
	{name: "reference to a flag", rules: `[{name: a, labels: {NAME: "@fleet.flag.AVX"}}]`, differs: []string{toFlag}},
	{name: "reference in another case", rules: `[{name: a, labels: {NAME: "@Fleet.Attr.word"}}]`, differs: []string{otherCase}},
	{name: "back-reference to a reference", rules: `[{name: a, labels: {NAME: "@fleet.attr.word"}, matchFeatures: [{feature: fleet.attr, matchExpressions: {word: {op: In, value: [red, green]}}}]}, ` +
		`{name: b, labels: {NAME-b: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {NAME: {op: In, value: [red]}}}]}]`, differs: []string{backRefs}},
	{name: "resources", rules: `[{name: a, extendedResources: {NAME-a: "<count>", NAME-b: "@fleet.attr.count", example.com/NAME: "<count>", NAME-c: abc}, matchFeatures: [<term>]}]`},
	{name: "resources of variables", rules: `[{name: a, vars: {NAME-v: "3"}, varsTemplate: "NAME-n={{len .fleet.device}}", matchFeatures: [{feature: fleet.device, matchExpressions: <devices>}]}, ` +
		`{name: b, extendedResources: {NAME-a: "@rule.matched.NAME-v", NAME-b: "@rule.matched.NAME-n"}}]`},
	{name: "several outputs", rules: `[{name: a, labels: {NAME: <value>}, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}={{.Value}}\n{{end}}", vars: {NAME-v: <word>}, annotations: {NAME: <word>}, ` +
		`extendedResources: {NAME: "<count>"}, taints: [{key: example.com/NAME, effect: <effect>}], matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}, <term>]}, ` +
		`{name: b, labels: {NAME-b: <value>, NAME: <value>}, matchAny: [{matchFeatures: [<term>]}, {matchFeatures: [{feature: rule.matched, matchExpressions: {NAME-v: {op: In, value: [<word>]}}}]}]}]`},
	{name: "taints", rules: `[{name: a, taints: [{key: example.com/NAME, value: <word>, effect: <effect>}, {key: feature.node.kubernetes.io/NAME, effect: NoSchedule}], matchFeatures: [<term>]}]`},
	{name: "one taint of two rules", rules: `[{name: a, taints: [{key: example.com/NAME, value: first, effect: NoSchedule}, {key: example.com/NAME, value: first, effect: PreferNoSchedule}], matchFeatures: [<term>]}, ` +
		`{name: b, taints: [{key: example.com/NAME, value: second, effect: NoSchedule}], matchFeatures: [<term>]}]`, differs: []string{taintRecord}, strictly: []string{taintRecord}},
	{name: "annotations", rules: `[{name: a, annotations: {NAME: <word>, example.com/NAME: "@fleet.attr.word"}, matchFeatures: [<term>]}]`},
	{name: "namespaces", rules: `[{name: a, labels: {denied.example.com/NAME: "1", sub.denied.example.net/NAME: "1", kubernetes.io/NAME: "1", extra.kubernetes.io/NAME: "1", ` +
		`k8s.io/NAME: "1", sub.feature.node.kubernetes.io/NAME: "1", node.kubernetes.io/NAME: "1", profile.node.kubernetes.io/NAME: "1", "NAME name": "1"}, matchFeatures: [<term>]}]`},
	{name: "spellings", rules: `[{name: a, labels: {NAME: bare, feature.node.kubernetes.io/NAME: <word>}, matchFeatures: [<term>]}, ` +
		`{name: b, labels: {NAME-b: <word>}, matchFeatures: [<term>]}, {name: c, labels: {feature.node.kubernetes.io/NAME-b: <word>}, matchFeatures: [<term>]}]`},
	{name: "a label and a template of one name", rules: `[{name: a, labels: {NAME: static}, labelsTemplate: "feature.node.kubernetes.io/NAME=template\nNAME-b=x", matchFeatures: [<term>]}]`,
		differs: []string{oneSpelling}, strictly: []string{oneSpelling}},
	{name: "shared", rules: `[{name: a, labels: {s00-shared: <word>}, annotations: {s00-shared: <word>}, extendedResources: {s00-shared: "<count>"}, matchFeatures: [<term>]}]`},
	{name: "versions", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: fleet.attr, matchExpressions: {version: {op: <order>, value: [<version>], type: version}}}]}]`},
	{name: "kernel versions", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: fleet.kernel, matchExpressions: {full: {op: <order>, value: [<version>], type: version}}}]}]`,
		differs: []string{rpmVersions}},
	{name: "not a number", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: fleet.odd, matchExpressions: {number: {op: <order>, value: [<number>]}}}]}]`},
	{name: "devices that are not comparable", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: fleet.device, matchExpressions: {firmware: {op: <order>, value: ["2"]}}}]}]`,
		differs: []string{notCompared}},
	{name: "quantities", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: memory.total, matchExpressions: {bytes: {op: Gt, value: [100Gi]}}}]}]`, differs: []string{quantities}},
	{name: "invalid", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: fleet.attr, matchExpressions: {word: <invalid>}}]}, {name: b, labels: {NAME-b: <value>}, matchFeatures: [<term>]}]`},
	{name: "no equals sign", rules: `[{name: a, labelsTemplate: "NAME\nNAME-b=1", labels: {NAME-c: "1"}, matchFeatures: [<term>]}]`, differs: []string{noEquals}},
	{name: "empty set", rules: `[{name: a, labels: {NAME: "1"}, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name}}=v\n{{end}}", matchFeatures: [{feature: fleet.attr, matchExpressions: {}}]}]`,
		differs: []string{emptySet}},
	{name: "empty set of devices", rules: `[{name: a, labelsTemplate: "NAME={{len .fleet.device}}", matchFeatures: [{feature: fleet.device, matchExpressions: {}}]}]`},
	{name: "functions", rules: `[{name: a, labelsTemplate: "{{range .fleet.attr}}NAME-{{.Name | lower}}={{.Value | upper | trunc 3 | replace \" \" \"_\"}}\n{{end}}NAME={{if gt (len .fleet.attr) 1}}many{{else}}few{{end}}", ` +
		`matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}]}]`},
	{name: "missing data", rules: `[{name: a, labels: {NAME: "1"}, labelsTemplate: "NAME-t={{len .fleet.flag}}", matchFeatures: [{feature: fleet.attr, matchExpressions: <attributes>}]}, {name: b, labels: {NAME-b: "1"}}]`},
	{name: "case of features", rules: `[{name: a, labels: {NAME: "1"}, matchFeatures: [{feature: Fleet.Attr, matchExpressions: <attributes>}]}, {name: b, labels: {NAME-b: "1"}, matchFeatures: [{feature: fleet.Case}]}]`},
}

// fill replaces the words in angle brackets.
func (d drawer) fill(text string) string {
	for {
		from := strings.IndexByte(text, '<')
		if from < 0 {
			return text
		}
		word, rest, _ := strings.Cut(text[from+1:], ">")
		text = text[:from] + d.word(word) + rest
	}
}

func (d drawer) word(word string) string {
	switch word {
	case "value":
		return d.one(`"true"`, `red`, `"a b"`, `"@fleet.attr.word"`, `""`, `"`+strings.Repeat("x", 64)+`"`)
	case "word":
		return d.one("red", "green", "blue")
	case "element":
		return d.one("word", "number", "version", "Upper")
	case "count":
		return d.one("1", "3", "1k", "2Gi", "0")
	case "effect":
		return d.one("NoSchedule", "PreferNoSchedule", "NoExecute")
	case "version":
		return fmt.Sprintf("%q", d.one(versions...))
	case "number":
		return fmt.Sprintf("%q", d.one(numbers...))
	case "order":
		return d.one("Gt", "Ge", "Lt", "Le")
	case "of word":
		return d.textExpression(words)
	case "name":
		return d.one(`{op: Exists}`, `{op: DoesNotExist}`, `{op: In, value: [AVX, word, "number"]}`, `{op: InRegexp, value: ["^(A|w)"]}`, `{op: NotIn, value: [AVX2, word]}`)
	case "names":
		return fmt.Sprintf(`{feature: %s, matchName: %s}`, d.one("fleet.flag", "fleet.attr", "fleet.device", "fleet.multi", "vendor.attr", "no.feature"), d.word("name"))
	case "attributes":
		return d.expressions(attributes)
	case "devices":
		return d.expressions(map[string][]string{"slot": {"0", "1"}, "vendor": {"10de", "8086"}, "speed": numbers})
	case "invalid":
		return d.one(`{op: In}`, `{op: Exists, value: [x]}`, `{op: InRegexp, value: ["["]}`, `{op: Gt, value: [x]}`, `{op: GtLt, value: ["3", "1"]}`, `{op: GeLe, value: ["1", "1"]}`,
			`{op: Gt, value: ["1"], type: float}`, `{op: IsTrue, value: [x]}`)
	case "term":
		return d.term()
	}
	panic(word)
}

// term returns an entry of matchFeatures that fails on no node.
func (d drawer) term() string {
	domain := d.one("fleet", "fleet", "fleet", "vendor")
	switch d.IntN(6) {
	case 0:
		return fmt.Sprintf(`{feature: %s.flag, matchExpressions: {%s: {op: %s}, %s: {op: %s}}}`, domain, d.one("AVX", "AVX2"), d.one("Exists", "DoesNotExist"),
			d.one("AMX", "sgx"), d.one("Exists", "DoesNotExist"))
	case 1:
		return fmt.Sprintf(`{feature: %s.device, matchExpressions: %s}`, domain, d.word("devices"))
	case 2:
		return fmt.Sprintf(`{feature: %s.multi, matchExpressions: %s}`, domain, d.word("attributes"))
	case 3:
		return fmt.Sprintf(`{feature: %s.%s}`, domain, d.one("flag", "attr", "device", "multi", "nothing"))
	case 4:
		return fmt.Sprintf(`{feature: %s.attr, matchExpressions: %s, matchName: %s}`, domain, d.word("attributes"), d.word("name"))
	}
	return fmt.Sprintf(`{feature: %s.attr, matchExpressions: %s}`, domain, d.word("attributes"))
}

// expressions returns one to three expressions. Only elements that are always numbers are compared as numbers: with an error beside an
// expression that does not match, the result of NFD depends on the order of a map.
func (d drawer) expressions(elements map[string][]string) string {
	names := slices.Sorted(maps.Keys(elements))
	var list []string
	for range 1 + d.IntN(3) {
		name := names[d.IntN(len(names))]
		expression := d.textExpression(elements[name])
		if slices.Equal(elements[name], numbers) && d.IntN(2) == 0 {
			expression = fmt.Sprintf(`{op: %s, value: [%q]}`, d.word("order"), d.one(numbers...))
			if d.IntN(4) == 0 {
				expression = fmt.Sprintf(`{op: %s, value: [%q, %q]}`, d.one("GtLt", "GeLe"), d.one("0", "1"), d.one("10", "25"))
			}
		}
		if !slices.ContainsFunc(list, func(e string) bool { return strings.HasPrefix(e, name+":") }) {
			list = append(list, name+": "+expression)
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func (d drawer) textExpression(values []string) string {
	switch d.IntN(7) {
	case 0:
		return fmt.Sprintf(`{op: NotIn, value: [%q]}`, d.one(values...))
	case 1:
		return fmt.Sprintf(`{op: InRegexp, value: [%q, %q]}`, "^[a-m1-5]", "e$")
	case 2:
		return `{op: Exists}`
	case 3:
		return `{op: DoesNotExist}`
	case 4:
		return d.one(`{op: IsTrue}`, `{op: IsFalse}`)
	}
	return fmt.Sprintf(`{op: In, value: [%q, %q]}`, d.one(values...), d.one(values...))
}

// rule returns the n-th rule of a form. Its name and its keys begin with both numbers.
func (d drawer) rule(index, n int) (*nfdv1alpha1.NodeFeatureRule, error) {
	rule := &nfdv1alpha1.NodeFeatureRule{}
	rule.Name = fmt.Sprintf("f%02d-%02d", index, n)
	text := "rules: " + d.fill(strings.ReplaceAll(forms[index].rules, "NAME", rule.Name))
	if err := yaml.UnmarshalStrict([]byte(text), &rule.Spec); err != nil {
		return nil, fmt.Errorf("form %q: %w\n%s", forms[index].name, err, text)
	}
	return rule, nil
}

// group returns a NodeFeatureGroup.
func (d drawer) group(n int) (*nfdv1alpha1.NodeFeatureGroup, error) {
	group := &nfdv1alpha1.NodeFeatureGroup{}
	group.Name, group.Namespace = fmt.Sprintf("g%02d", n), own
	text := "featureGroupRules: " + d.fill(d.one(`[{name: a, matchFeatures: [<term>]}]`, `[{name: a, matchFeatures: [<term>, <term>]}, {name: b, matchFeatures: [<term>]}]`,
		`[{name: a, vars: {x: <word>}, matchFeatures: [<term>]}, {name: b, matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: In, value: [red]}}}]}]`,
		`[{name: a, matchAny: [{matchFeatures: [<term>]}, {matchFeatures: [<term>]}]}]`))
	if err := yaml.UnmarshalStrict([]byte(text), &group.Spec); err != nil {
		return nil, fmt.Errorf("group: %w\n%s", err, text)
	}
	return group, nil
}
