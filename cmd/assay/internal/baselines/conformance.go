package baselines

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

// Evidence is what a report for Kubernetes AI Conformance rests on: the requirement driver_runtime_management asks for "a verifiable
// mechanism for ensuring that compatible accelerator drivers and corresponding container runtime configurations are correctly installed
// and maintained on nodes with accelerators" (docs/AIConformance-1.37.yaml of github.com/cncf/k8s-ai-conformance).
type Evidence struct {
	Assay   string // version of this program
	Cluster string // version of Kubernetes
	Time    time.Time
	Nodes   []baseline.Node
	// Reports are those of the baselines that read a version of a driver or of a container runtime.
	Reports []*Report
}

// The requirement, as the form has it. Its description may also be that of the form, which a reviewer compares it with.
const (
	requirementID          = "driver_runtime_management"
	requirementLevel       = "SHOULD" // in the form of Kubernetes 1.37
	requirementDescription = "A verifiable mechanism that compatible accelerator drivers and the matching container runtime configuration are " +
		"installed and maintained on nodes with accelerators"
)

// EvidenceFile is the name of the file in which the stanza expects the evidence, next to PRODUCT.yaml.
const EvidenceFile = "driver-runtime-management.md"

// Stanza is the entry of the requirement in the list spec.accelerators of PRODUCT.yaml.
type Stanza struct {
	ID          string   `json:"id"`
	Description string   `json:"description"`
	Level       string   `json:"level"`
	Status      string   `json:"status"`
	Evidence    []string `json:"evidence"`
	Notes       string   `json:"notes"`
}

// The values of status that the form accepts.
const (
	implemented    = "Implemented"
	partly         = "Partially Implemented"
	notImplemented = "Not Implemented"
	notApplicable  = "N/A"
)

// versionFeatures are the features with versions of drivers and container runtimes.
var versionFeatures = []string{
	"kernel.module", "gpu.nvidia", facts.DeviceFeature, facts.DriverFeature, "kubernetes.node", "kubernetes.runtimehandler", "cdi.kind",
}

// Verifies reports whether checks that read these features are about drivers or container runtimes.
func Verifies(reads []string) bool {
	return slices.ContainsFunc(reads, func(name string) bool { return slices.Contains(versionFeatures, name) })
}

// accelerated is a node with accelerators.
type accelerated struct {
	name                             string
	accelerators, versions, runtimes []string
	verdict                          string
}

// The verdicts about a node that no baseline says something about.
const (
	uncovered = "no NodeBaseline checks it"
	unknown   = "unknown"
	conforms  = "conforms"
)

// nodes returns the nodes with accelerators, and the number of others of which it is unknown whether they have one. ResourceSlices and the
// Node show accelerators without a worker.
func (e *Evidence) nodes() (out []accelerated, doubtful int) {
	for _, n := range e.Nodes {
		a := accelerated{name: n.Input.Node.Name, accelerators: acceleratorsOf(n.Input.Facts)}
		if len(a.accelerators) == 0 {
			if n.Unknown || n.Unpublished || len(n.Input.Publishers) == 0 {
				doubtful++
			}
			continue
		}
		a.versions, a.runtimes = versionsOf(n.Input.Facts), runtimesOf(n.Input.Facts)
		if a.verdict = e.verdict(a.name); n.Unknown {
			a.verdict = unknown
		}
		out = append(out, a)
	}
	return out, doubtful
}

// mechanism returns where the versions of drivers come from: the requirement prefers DRA where drivers publish versions with it.
func (e *Evidence) mechanism() string {
	served, nodes, found := false, 0, map[string]bool{}
	for _, n := range e.Nodes {
		f := n.Input.Facts
		served = served || f.Feature(facts.DeviceFeature) != nil
		has := false
		each(f, facts.DeviceFeature, func(get func(string) string) {
			if get("driverVersion") != "" {
				has, found[get("driver.name")] = true, true
			}
		})
		if has {
			nodes++
		}
	}
	switch {
	case len(found) > 0:
		return fmt.Sprintf("DRA: the versions on %s are in ResourceSlices of %s", clip.Count(nodes, "node"), strings.Join(slices.Sorted(maps.Keys(found)), ", "))
	case served:
		return "not DRA: no device in ResourceSlices has a driverVersion"
	}
	return "not DRA: the cluster does not serve ResourceSlices, or they were not read"
}

// verdict returns what the baselines say about a node.
func (e *Evidence) verdict(node string) string {
	out, failing := uncovered, []string(nil)
	for _, r := range e.Reports {
		for _, d := range r.Deviations {
			if d.Node == node {
				failing = append(failing, fmt.Sprintf("%s (%s)", d.Check, r.Baseline))
			}
		}
		switch {
		case slices.Contains(r.UnknownNodes, node):
			out = unknown
		case out == uncovered && slices.Contains(r.ConformingNodes, node):
			out = conforms
		}
	}
	if failing != nil {
		return "deviates: " + strings.Join(failing, ", ")
	}
	return out
}

// Stanza returns the entry of the form.
func (e *Evidence) Stanza() Stanza {
	count := map[string]int{}
	nodes, doubtful := e.nodes()
	for _, a := range nodes {
		verdict := a.verdict
		if strings.HasPrefix(verdict, "deviates") {
			verdict = "deviates"
		}
		count[verdict]++
	}
	out := Stanza{ID: requirementID, Description: requirementDescription, Level: requirementLevel, Evidence: []string{EvidenceFile}}
	all := clip.Count(len(nodes), "node") + " with accelerators"
	var open []string
	for _, state := range []struct{ verdict, text string }{
		{"deviates", "%s of them differ from their NodeBaseline"}, {uncovered, "no NodeBaseline checks %s of them"}, {unknown, "the features of %s of them are unknown"},
	} {
		if n := count[state.verdict]; n > 0 {
			open = append(open, fmt.Sprintf(state.text, fmt.Sprint(n)))
		}
	}
	if doubtful > 0 {
		open = append(open, fmt.Sprintf("whether there are accelerators on %s without published features is unknown", clip.Count(doubtful, "other node")))
	}
	switch {
	case len(nodes) == 0 && doubtful > 0:
		out.Status, out.Notes = partly, "No node of the cluster is known to have an accelerator; "+strings.Join(open, "; ")+"."
		return out
	case len(nodes) == 0:
		out.Status, out.Notes = notApplicable, "No node of the cluster has an accelerator."
		return out
	case len(open) == 0 && !e.split():
		out.Status = implemented
	case count[uncovered] == len(nodes):
		out.Status = notImplemented
	default:
		out.Status = partly
	}
	out.Notes = fmt.Sprintf("Assay compares the versions of drivers and container runtimes on each node with NodeBaselines, whenever a node changes: %s", all)
	switch {
	case len(open) > 0:
		out.Notes += "; " + strings.Join(open, "; ")
	case e.split():
		out.Notes += "; they have different values, and none of them is that of more than half of the nodes"
	default:
		out.Notes += ", and all of them conform"
	}
	out.Notes += ". Mechanism: " + e.mechanism() + "."
	return out
}

// split reports whether a check has no majority.
func (e *Evidence) split() bool {
	return slices.ContainsFunc(e.Reports, func(r *Report) bool {
		for _, c := range r.Checks {
			if c.NoMajority > 0 {
				return true
			}
		}
		return false
	})
}

// Write writes the evidence as Markdown, with the stanza at its end.
func (e *Evidence) Write(w io.Writer) error {
	var out strings.Builder
	stanza := e.Stanza()
	_, _ = fmt.Fprintf(&out, "# %s\n\n", requirementID)
	table(&out, [][]string{
		{"fact", "value"},
		{"level", stanza.Level},
		{"status", stanza.Status},
		{"verdict", stanza.Notes},
		{"time", e.Time.UTC().Format(time.RFC3339)},
		{"Kubernetes", e.Cluster},
		{"Assay", e.Assay},
	})
	out.WriteString(`
## Mechanism

On each node, a worker of Assay reads the versions of drivers from the kernel and publishes them in a NodeFeature: ` + "`kernel.module`, `gpu.nvidia`" + `.
The kubelet reports the container runtime and its handlers in the status of the Node, container runtimes describe devices in ` + "`cdi.kind`" + `, and DRA
drivers publish devices with their versions in ResourceSlices. Of this cluster: ` + e.mechanism() + `. Assay's controller compares them with NodeBaselines whenever a node changes,
and reports each node that differs in the status of the NodeBaseline, as an Event and as a metric. Check it with:

` + "```console" + `
$ kubectl get nodebaselines
$ kubectl wait nodebaselines --all --for=condition=Conforming
$ assay baseline report
` + "```\n")
	out.WriteString("\n## Nodes with accelerators\n\n")
	rows := [][]string{{"node", "accelerators", "drivers", "container runtime", "verdict"}}
	nodes, _ := e.nodes()
	for _, a := range nodes {
		rows = append(rows, []string{a.name, joined(a.accelerators), joined(a.versions), joined(a.runtimes), a.verdict})
	}
	if len(rows) == 1 {
		out.WriteString("None.\n")
	} else {
		table(&out, rows)
	}
	for _, r := range e.Reports {
		out.WriteString("\n")
		markdown(&out, r, "##")
	}
	out.WriteString("\n## For PRODUCT.yaml\n\n```yaml\nspec:\n  accelerators:\n" + stanza.YAML("  ") + "```\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// YAML returns the stanza as an element of a list, with an indentation.
func (s *Stanza) YAML(indent string) string {
	return fmt.Sprintf("%[1]s- id: %[2]s\n%[1]s  description: %[3]s\n%[1]s  level: %[4]s\n%[1]s  status: %[5]s\n%[1]s  evidence: [%[6]s]\n%[1]s  notes: %[7]s\n",
		indent, s.ID, clip.Quote(s.Description), s.Level, clip.Quote(s.Status), clip.QuoteAll(s.Evidence), clip.Quote(s.Notes))
}

func joined(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// resources matches extended resources of accelerators in kubernetes.allocatable, and names of DRA drivers such as gpu.example.com.
var resources = regexp.MustCompile(`(/|^)(gpu|tpu|npu|vpu|neuron|neuroncore|gaudi|i915|xe)([-./]|$)`)

// acceleratorsOf returns the accelerators of a node: by the driver's name of the model, by PCI class, by the devices of a DRA driver, by the
// kernel's subsystem, or by the resources of a device plug-in.
func acceleratorsOf(f *facts.Facts) []string {
	count := map[string]int{}
	each(f, "gpu.nvidia", func(get func(string) string) {
		if model := get("model"); model != "" {
			count[model]++
		}
	})
	nvidia := len(count) > 0
	each(f, "pci.device", func(get func(string) string) {
		if !(nvidia && get("vendor") == "10de") && isAccelerator(get("class"), get("vendor")) {
			count["PCI "+get("vendor")+":"+get("device")]++
		}
	})
	if len(count) == 0 {
		each(f, facts.DeviceFeature, func(get func(string) string) {
			if driver := get("driver.name"); resources.MatchString(driver) && get("type") != "channel" {
				count[cmp.Or(get("productName"), get("model"), driver)]++
			}
		})
	}
	if len(count) == 0 {
		each(f, "gpu.accel", func(get func(string) string) { count["accel "+get("driver")]++ })
	}
	out := make([]string, 0, len(count))
	for _, name := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%d× %s", count[name], name))
	}
	if r := f.Feature("kubernetes.allocatable"); len(out) == 0 && r != nil {
		for i, name := range r.Attributes.Names() {
			if value := r.Attributes.Value(i); value != "0" && strings.Contains(name, "/") && resources.MatchString(name) {
				out = append(out, fmt.Sprintf("%s× %s", value, name))
			}
		}
	}
	return out
}

// isAccelerator reports whether a PCI device is an accelerator: a 3D controller (0302), another display controller (0380), a processing
// accelerator (12), or a graphics card of NVIDIA with a display (0300).
func isAccelerator(class, vendor string) bool {
	return class == "0302" || class == "0380" || strings.HasPrefix(class, "12") || class == "0300" && vendor == "10de"
}

// versionsOf returns the versions of drivers.
func versionsOf(f *facts.Facts) (out []string) {
	each(f, "kernel.module", func(get func(string) string) {
		if slices.Contains(drivers, get("name")) {
			out = append(out, get("name")+" "+get("version"))
		}
	})
	each(f, facts.DeviceFeature, func(get func(string) string) {
		if version := get("driverVersion"); version != "" {
			out = append(out, "DRA "+get("driver.name")+" "+version)
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// runtimesOf returns the container runtime, its handlers, and the kinds of devices that it knows.
func runtimesOf(f *facts.Facts) (out []string) {
	if node := f.Feature("kubernetes.node"); node != nil {
		name, _ := node.Attributes.Get("container_runtime")
		version, _ := node.Attributes.Get("container_runtime_version")
		if name != "" {
			out = append(out, strings.TrimSpace(name+" "+version))
		}
	}
	each(f, "kubernetes.runtimehandler", func(get func(string) string) {
		if name := get("name"); name != "" {
			out = append(out, "handler "+name)
		}
	})
	each(f, "cdi.kind", func(get func(string) string) { out = append(out, "CDI "+get("kind")) })
	return out
}

// each calls do with the instances of a feature. Get returns "" for a missing element.
func each(f *facts.Facts, feature string, do func(get func(element string) string)) {
	found := f.Feature(feature)
	if found == nil {
		return
	}
	for i := range found.Instances.Len() {
		do(func(element string) string {
			value, _ := found.Instances.Get(i, element)
			return value
		})
	}
}
