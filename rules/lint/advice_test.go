package lint_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/version"
	"github.com/assay-project/assay/rules/warning"
)

// What a rule does on a node.
type result int

const (
	matches result = iota
	differs
	fails // it does not compile, or cannot be evaluated on the node
)

// evaluate evaluates the matchers of a rule on nodes.
func evaluate(t *testing.T, r *nfdv1alpha1.Rule, nodes []*facts.Facts) []result {
	t.Helper()
	only := nfdv1alpha1.Rule{Name: "a", MatchFeatures: r.MatchFeatures, MatchAny: r.MatchAny, Conditions: r.Conditions, Labels: map[string]string{"x": "y"}}
	set, report := rules.CompileSpec("a", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{only}}, rules.Options{})
	out := make([]result, len(nodes))
	if !report.OK() {
		return slices.Repeat([]result{fails}, len(nodes))
	}
	program := rules.Link(rules.Options{}, set)
	for i, node := range nodes {
		outcome := program.Eval(rules.Input{Node: rules.Node{Name: "n"}, Facts: node})
		switch {
		case len(outcome.Labels()) > 0:
			out[i] = matches
		case len(outcome.Faulty()) > 0:
			out[i] = fails
		default:
			out[i] = differs
		}
	}
	return out
}

// machines returns nodes with typical values of the features that some rules read, and with the values that the rules mention.
func machines(list ...*nfdv1alpha1.Rule) []*facts.Facts {
	wanted := map[string]map[string][]string{} // feature -> element -> values
	for _, r := range list {
		terms := slices.Clone(r.MatchFeatures)
		for _, alternative := range r.MatchAny {
			terms = append(terms, alternative.MatchFeatures...)
		}
		for _, term := range terms {
			name := strings.ToLower(term.Feature)
			f := dictionary.Find(name)
			if f == nil {
				continue
			}
			if wanted[name] == nil {
				wanted[name] = map[string][]string{}
			}
			if term.MatchExpressions == nil {
				continue
			}
			for key, e := range *term.MatchExpressions {
				if element := f.Element(key); element != nil && e != nil {
					wanted[name][key] = append(wanted[name][key], around(element, e.Value)...)
				}
			}
		}
	}
	var out []*facts.Facts
	add := func(pick func(feature string) ([]map[string]string, bool)) {
		node := map[string]facts.Feature{}
		for name := range wanted {
			elements, ok := pick(name)
			if !ok {
				continue
			}
			node[name] = feature(dictionary.Find(name), elements)
		}
		out = append(out, facts.FromMap(node, nil))
	}
	for i := range 6 {
		add(func(name string) ([]map[string]string, bool) {
			return []map[string]string{typical(name, wanted[name], i)}, true
		})
		add(func(name string) ([]map[string]string, bool) {
			return []map[string]string{typical(name, wanted[name], i), typical(name, wanted[name], i+1)}, true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		add(func(other string) ([]map[string]string, bool) { return nil, other != name })
		for _, key := range slices.Sorted(maps.Keys(wanted[name])) {
			for _, v := range append(wanted[name][key], dictionary.FindElement(name, key).Typical()...) {
				add(func(other string) ([]map[string]string, bool) {
					element := typical(other, wanted[other], 0)
					if other == name {
						element[key] = v
					}
					return []map[string]string{element}, true
				})
			}
			add(func(other string) ([]map[string]string, bool) {
				element := typical(other, wanted[other], 0)
				if other == name {
					delete(element, key)
				}
				return []map[string]string{element}, true
			})
		}
	}
	return out
}

// around returns the values that an element can have of those in an expression, and for numbers their neighbors.
func around(e *dictionary.Element, values []string) (out []string) {
	for _, v := range values {
		if n, ok := rules.Quantity(v); ok && e.Kind.Numeric() && e.Kind != dictionary.Bit {
			out = append(out, strconv.FormatInt(n-1, 10), strconv.FormatInt(n, 10), strconv.FormatInt(n+1, 10))
		} else if e.Has(v) {
			out = append(out, v)
		}
		if parsed, err := version.Parse(v); err == nil && e.Kind == dictionary.Version {
			out = append(out, parsed.String()+".1", v)
		}
	}
	return slices.DeleteFunc(out, func(v string) bool { return !e.Has(v) })
}

// typical returns the elements of a node or an instance: the i-th values of the dictionary.
func typical(feature string, wanted map[string][]string, i int) map[string]string {
	out := map[string]string{}
	f := dictionary.Find(feature)
	add := func(name string, e *dictionary.Element) {
		if list := e.Typical(); len(list) > 0 && list[i%len(list)] != "" {
			out[name] = list[i%len(list)]
		}
	}
	for j := range f.Elements {
		if e := &f.Elements[j]; !e.Pattern() {
			add(e.Name, e)
		}
	}
	for name := range wanted {
		if e := f.Element(name); e.Kind == dictionary.Flag && i%2 == 0 {
			out[name] = ""
		} else if e.Pattern() {
			add(name, e)
		}
	}
	return out
}

func feature(f *dictionary.Feature, elements []map[string]string) facts.Feature {
	api := &nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{}}
	flags, attributes, instances := map[string]nfdv1alpha1.Nil{}, map[string]string{}, []nfdv1alpha1.InstanceFeature{}
	for _, element := range elements {
		instances = append(instances, nfdv1alpha1.InstanceFeature{Attributes: element})
		for name, value := range element {
			if e := f.Element(name); e.Kind == dictionary.Flag {
				flags[name] = nfdv1alpha1.Nil{}
			} else {
				attributes[name] = value
			}
		}
	}
	if f.Is(dictionary.Flags) {
		api.Flags[f.Name] = nfdv1alpha1.FlagFeatureSet{Elements: flags}
	}
	if f.Is(dictionary.Attributes) {
		api.Attributes[f.Name] = nfdv1alpha1.AttributeFeatureSet{Elements: attributes}
	}
	if f.Is(dictionary.Instances) {
		api.Instances[f.Name] = nfdv1alpha1.InstanceFeatureSet{Elements: instances}
	}
	if found := facts.New(api, nil).Feature(f.Name); found != nil {
		return *found
	}
	return facts.Feature{} // rule.matched, which no publisher gives
}

// tried applies what a warning proposes, and returns what is wrong with it, or "".
func tried(t *testing.T, r *nfdv1alpha1.Rule, w warning.Warning) string {
	t.Helper()
	changed, ok := warning.Apply(r, w.Fix)
	if !ok {
		return "does not apply"
	}
	_, before := rules.CompileSpec("a", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*r}}, rules.Options{})
	_, report := rules.CompileSpec("a", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*changed}}, rules.Options{})
	if before.OK() && !report.OK() {
		return "does not compile: " + report.Errors.ToAggregate().Error()
	}
	if !before.OK() {
		return ""
	}
	nodes := machines(r, changed)
	was, is := evaluate(t, r, nodes), evaluate(t, changed, nodes)
	if w.Fix.Same {
		for i := range nodes {
			if was[i] != fails && was[i] != is[i] {
				return fmt.Sprintf("changes the meaning on %v", nodes[i].Features())
			}
		}
		return ""
	}
	if e := w.Fix.Edits[0]; e.Name != "" || e.Path[len(e.Path)-1] == "feature" {
		return renamed(w.Fix.Edits[0], r)
	}
	// What is probably meant must match some machine, and not all. Only the terms that it changes count, since others need not be true of
	// typical machines.
	changed = onlyChanged(r, changed)
	nodes = machines(r, changed)
	is = evaluate(t, changed, nodes)
	switch {
	case len(changed.MatchFeatures)+len(changed.MatchAny) == 0:
		return "" // an output
	case !slices.Contains(is, matches):
		return "matches no machine"
	case !slices.Contains(is, differs) && !slices.Contains(is, fails):
		return "matches every machine"
	}
	return ""
}

// renamed returns what is wrong with another name of a feature or element, or "". Its values are those of the author.
func renamed(e warning.Edit, r *nfdv1alpha1.Rule) string {
	if e.Name == "" {
		if dictionary.Find(e.Value.(string)) == nil {
			return "names no feature"
		}
		return ""
	}
	f := dictionary.Find(strings.ToLower(r.MatchFeatures[e.Path[1].(int)].Feature))
	if f.Element(e.Name) == nil {
		return "names no element"
	}
	return ""
}

// onlyChanged returns the second rule with the terms and expressions that are not in the first.
func onlyChanged(was, is *nfdv1alpha1.Rule) *nfdv1alpha1.Rule {
	text := func(v any) string { data, _ := yaml.Marshal(v); return string(data) }
	var old []string
	collect := func(terms nfdv1alpha1.FeatureMatcher) {
		for _, term := range terms {
			old = append(old, text(term))
			if term.MatchExpressions != nil {
				for key, e := range *term.MatchExpressions {
					old = append(old, term.Feature+"/"+key+text(e))
				}
			}
		}
	}
	collect(was.MatchFeatures)
	for _, alternative := range was.MatchAny {
		collect(alternative.MatchFeatures)
	}
	out := &nfdv1alpha1.Rule{Name: is.Name, Conditions: is.Conditions}
	keep := func(terms nfdv1alpha1.FeatureMatcher) {
		for _, term := range terms {
			if slices.Contains(old, text(term)) {
				continue
			}
			if term.MatchExpressions != nil {
				left := nfdv1alpha1.MatchExpressionSet{}
				for key, e := range *term.MatchExpressions {
					if !slices.Contains(old, term.Feature+"/"+key+text(e)) {
						left[key] = e
					}
				}
				term.MatchExpressions = &left
			}
			term.MatchName = nil // no proposal changes it
			out.MatchFeatures = append(out.MatchFeatures, term)
		}
	}
	keep(is.MatchFeatures)
	for _, alternative := range is.MatchAny {
		keep(alternative.MatchFeatures)
	}
	return out
}

// describes requires that a warning without a proposal does not say what to write, since no test executes it.
func describes(t *testing.T, w warning.Warning) {
	t.Helper()
	if strings.Contains(w.Message, "write ") && w.Fix == nil {
		t.Errorf("%v: says what to write, but proposes nothing", w)
	}
}

// try tries all proposals about a rule, and returns their number.
func try(t *testing.T, r *nfdv1alpha1.Rule) (proposals int) {
	t.Helper()
	for _, w := range lint.Spec(&nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*r}}, lint.Options{}) {
		if describes(t, w); w.Fix == nil {
			continue
		}
		proposals++
		if why := tried(t, r, w); why != "" {
			text, _ := yaml.Marshal(r)
			t.Errorf("%v: the proposal %s\n%s", w, why, text)
		}
	}
	return proposals
}

// IsFalse of rotational was advised to become In ["1"], which is the opposite, and 500Gi to be compared as a version, which 8 GiB exceed.
func TestProposalsMeanWhatTheRuleMeans(t *testing.T) {
	for name, tc := range map[string]struct{ term, want string }{
		"BitIsFalse":       {`{feature: storage.block, matchExpressions: {rotational: {op: IsFalse}}}`, `write op: In, value: ["0"]`},
		"BitIsTrue":        {`{feature: storage.block, matchExpressions: {dax: {op: IsTrue}}}`, `write op: In, value: ["1"]`},
		"OptionIsFalse":    {`{feature: kernel.config, matchExpressions: {PREEMPT_RT: {op: IsFalse}}}`, "write op: DoesNotExist"},
		"OptionIsTrue":     {`{feature: kernel.config, matchExpressions: {PREEMPT_RT: {op: IsTrue}}}`, `write op: In, value: ["y"]`},
		"OptionInN":        {`{feature: kernel.config, matchExpressions: {PREEMPT_RT: {op: In, value: ["n"]}}}`, "write op: DoesNotExist"},
		"FlagIsFalse":      {`{feature: cpu.cpuid, matchExpressions: {AVX2: {op: IsFalse}}}`, "write op: DoesNotExist"},
		"FlagInTrue":       {`{feature: cpu.cpuid, matchExpressions: {AVX2: {op: In, value: ["true"]}}}`, "write op: Exists"},
		"QuantityVersion":  {`{feature: memory.total, matchExpressions: {bytes: {op: Gt, value: ["500Gi"], type: version}}}`, `write op: Gt, value: ["500Gi"]`},
		"Quantity":         {`{feature: memory.total, matchExpressions: {bytes: {op: Gt, value: ["500Gi"]}}}`, `NFD does not evaluate quantities; for nodes that NFD labels too: write op: Gt, value: ["536870912000"]`},
		"QuantityRange":    {`{feature: memory.total, matchExpressions: {bytes: {op: GeLe, value: ["6Gi", "1Ti"]}}}`, `write op: GeLe, value: ["6442450944", "1099511627776"]`},
		"MegaOfCache":      {`{feature: cpu.cache, matchExpressions: {l3.bytes: {op: Ge, value: ["32M"]}}}`, `write op: Ge, value: ["32Mi"]`},
		"DriverVersion":    {`{feature: gpu.nvidia, matchExpressions: {version: {op: Ge, value: ["550"]}}}`, `write op: Ge, value: ["550"], type: version`},
		"OSVersion":        {`{feature: system.osrelease, matchExpressions: {VERSION_ID: {op: Ge, value: ["22"]}}}`, "type: version"},
		"FirmwareVersion":  {`{feature: rdma.device, matchExpressions: {fw_ver: {op: Ge, value: ["22"]}}}`, "type: version"},
		"KubeletVersion":   {`{feature: kubernetes.node, matchExpressions: {kubelet_version: {op: Ge, value: ["1"]}}}`, "type: version"},
		"MajorAndMinor":    {`{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ["5"]}, minor: {op: Ge, value: ["10"]}}}`, `write full: {op: Ge, value: ["5.10"], type: version}`},
		"MajorAndMinorGt":  {`{feature: system.osrelease, matchExpressions: {VERSION_ID.major: {op: Ge, value: ["22"]}, VERSION_ID.minor: {op: Gt, value: ["3"]}}}`, `write VERSION_ID: {op: Ge, value: ["22.4"], type: version}`},
		"MajorAndMinorLe":  {`{feature: kernel.version, matchExpressions: {major: {op: Le, value: ["5"]}, minor: {op: Le, value: ["10"]}}}`, `write full: {op: Lt, value: ["5.11"], type: version}`},
		"NotInOverDevices": {`{feature: pci.device, matchExpressions: {class: {op: NotIn, value: ["0108"]}}}`, `conditions: [{op: "!one-of"`},
		"Transport":        {`{feature: storage.nvme, matchExpressions: {transport: {op: In, value: ["PCIe"]}}}`, "write pcie"},
		"TPM":              {`{feature: system.tpm, matchExpressions: {version: {op: In, value: ["2.0"]}}}`, "write 2"},
		"Cgroup":           {`{feature: kernel.cgroup, matchExpressions: {version: {op: In, value: ["v2"]}}}`, "write 2"},
		"GoArchitecture":   {`{feature: kubernetes.node, matchExpressions: {architecture: {op: In, value: ["x86_64"]}}}`, "write amd64"},
		"Architecture":     {`{feature: cpu.model, matchExpressions: {architecture: {op: In, value: ["arm64"]}}}`, "write aarch64"},
		"VendorOfDRM":      {`{feature: gpu.drm, matchExpressions: {vendor: {op: In, value: ["0x1002"]}}}`, `without 0x: "1002"`},
		"HexModel":         {`{feature: cpu.model, matchExpressions: {family: {op: In, value: ["0x19"]}}}`, `family is never "0x19": write 25`},
		"Comparison":       {`{feature: memory.numa, matchExpressions: {node_count: {op: In, value: [">1"]}}}`, `write op: Gt, value: ["1"]`},
		"Glob":             {`{feature: system.name, matchExpressions: {nodename: {op: In, value: ["gpu-*"]}}}`, `write op: InRegexp, value: ["^gpu-"]`},
		"DriverOfDRA":      {`{feature: dra.device, matchExpressions: {driver: {op: In, value: [gpu.nvidia.com]}}}`, "did you mean driver.name?"},
		"HugePages":        {`{feature: memory.hugepages, matchExpressions: {hugepages-2Mi: {op: In, value: ["0x10"]}}}`, "write 16"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &nfdv1alpha1.Rule{}
			if err := yaml.UnmarshalStrict([]byte(`{name: a, labels: {a: b}, matchFeatures: [`+tc.term+`]}`), r); err != nil {
				t.Fatal(err)
			}
			list := lint.Spec(&nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*r}}, lint.Options{})
			if len(list) != 1 || !strings.Contains(list[0].Message, tc.want) || list[0].Fix == nil {
				t.Fatalf("got %v, want one warning with a proposal that contains %q", list, tc.want)
			}
			if why := tried(t, r, list[0]); why != "" {
				t.Errorf("%v: the proposal %s", list[0], why)
			}
		})
	}
}

// Debian's versions are integers, so an integer comparison is right where a rule requires Debian. Versions of one number are equal either way.
func TestIntegerComparisonsThatAreRightDrawNoWarning(t *testing.T) {
	for _, term := range []string{
		`{feature: system.osrelease, matchExpressions: {ID: {op: In, value: [debian]}, VERSION_ID: {op: Ge, value: ["12"]}}}`,
		`{feature: kernel.version, matchExpressions: {major: {op: In, value: ["5"]}, minor: {op: Ge, value: ["10"]}}}`,
		`{feature: cpu.topology, matchExpressions: {cpu_count: {op: Ge, value: ["8"], type: version}}}`,
		`{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["unknown"]}}}`,
		`{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}, class: {op: NotIn, value: ["0300"]}}}`,
	} {
		if got := lintText(t, `{rules: [{name: a, labels: {a: "b"}, matchFeatures: [`+term+`]}]}`, lint.Options{}); got != "" {
			t.Errorf("%s: %s", term, got)
		}
	}
}

// validRules returns the rules of the library and of public sources.
func validRules(t *testing.T) (out []nfdv1alpha1.Rule) {
	t.Helper()
	for _, pattern := range []string{"../../library/*.yaml", "../../webhook/testdata/good/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range bytes.SplitSeq(data, []byte("\n---")) {
				object := &nfdv1alpha1.NodeFeatureRule{}
				if yaml.Unmarshal(doc, object) == nil && object.Kind == "NodeFeatureRule" {
					out = append(out, object.Spec.Rules...)
				}
			}
		}
	}
	if len(out) < 100 {
		t.Fatalf("%d rules, want more", len(out))
	}
	return out
}

// mutate changes an expression of a rule as users do who write it from memory, and reports whether it did.
func mutate(random *rand.Rand, r *nfdv1alpha1.Rule) bool {
	if len(r.MatchFeatures) == 0 {
		return false
	}
	term := &r.MatchFeatures[random.IntN(len(r.MatchFeatures))]
	if random.IntN(12) == 0 {
		term.Feature = misspell(random, term.Feature)
		return true
	}
	if random.IntN(3) == 0 { // another feature, with any of its elements
		f := dictionary.All()[random.IntN(len(dictionary.All()))]
		if names := f.ElementNames(); len(names) > 0 {
			name := names[random.IntN(len(names))]
			term.Feature, term.MatchExpressions = f.Name, &nfdv1alpha1.MatchExpressionSet{name: {Op: nfdv1alpha1.MatchIn, Value: slices.Clone(f.Element(name).Typical()[:min(1, len(f.Element(name).Typical()))])}}
		}
	}
	if term.MatchExpressions == nil || len(*term.MatchExpressions) == 0 {
		return false
	}
	keys := facts.SortedKeys(*term.MatchExpressions)
	key := keys[random.IntN(len(keys))]
	e := (*term.MatchExpressions)[key]
	if random.IntN(8) == 0 {
		delete(*term.MatchExpressions, key)
		(*term.MatchExpressions)[misspell(random, key)] = e
		return true
	}
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	switch op := nfdv1alpha1.MatchOp(pick("In", "NotIn", "IsTrue", "IsFalse", "Gt", "Ge", "Lt", "Le", "Exists", "InRegexp", "GeLe")); op {
	case nfdv1alpha1.MatchIsTrue, nfdv1alpha1.MatchIsFalse, nfdv1alpha1.MatchExists:
		*e = nfdv1alpha1.MatchExpression{Op: op}
	case nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn:
		e.Op, e.Type = op, ""
		for i, v := range e.Value {
			e.Value[i] = pick(strings.ToUpper(v), "0x"+v, "v"+v, v+".0", ">"+v, v+"*", "true", "False", "yes", "n", "16Gi", "0"+v, strings.ToLower(v))
		}
		if len(e.Value) == 0 {
			e.Value = nfdv1alpha1.MatchValue{pick("true", "false", "1", "0", "y", "n", "PCIe", "2.0", "0x10de")}
		}
	case nfdv1alpha1.MatchGeLe:
		*e = nfdv1alpha1.MatchExpression{Op: op, Value: nfdv1alpha1.MatchValue{pick("1", "1Gi", "1M"), pick("9", "64Gi", "500G")}, Type: nfdv1alpha1.ValueType(pick("", "version"))}
	default:
		*e = nfdv1alpha1.MatchExpression{Op: op, Value: nfdv1alpha1.MatchValue{pick("1", "22", "5.10", "500Gi", "32M", "100m", "1.5Gi", "x", "6")}, Type: nfdv1alpha1.ValueType(pick("", "", "version"))}
	}
	return true
}

func misspell(random *rand.Rand, s string) string {
	if len(s) < 3 {
		return s + "s"
	}
	i := 1 + random.IntN(len(s)-2)
	return []string{s[:i] + s[i+1:], s[:i] + s[i:i+1] + s[i:], strings.ToUpper(s), strings.ReplaceAll(s, "_", "-"), s + "s"}[random.IntN(5)]
}

// Whatever a user changes in a valid rule, no proposal makes it worse: one that keeps the meaning does, and none is invalid, matches nothing or
// matches everything.
func TestNoProposalMakesARuleWorse(t *testing.T) {
	valid := validRules(t)
	const mutations = 500 // they take less than a second
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 60))
			proposals := 0
			for done := 0; done < mutations; {
				r := valid[random.IntN(len(valid))].DeepCopy()
				if mutate(random, r) {
					done++
					proposals += try(t, r)
				}
			}
			if proposals < mutations/10 {
				t.Errorf("%d proposals for %d mutations, want more", proposals, mutations)
			}
		})
	}
}
