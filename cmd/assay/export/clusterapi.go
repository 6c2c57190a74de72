package export

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

// Annotations of a MachineDeployment from which Cluster Autoscaler makes the template of a node
// (cluster-autoscaler/cloudprovider/clusterapi/README.md).
const (
	capacityLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"
	capacityTaints = "capacity.cluster-autoscaler.kubernetes.io/taints"
	// The template has a ResourceSlice of this DRA driver with this number of devices. Without the first one, the second one is the amount
	// of the extended resource in the third one.
	capacityDriver  = "capacity.cluster-autoscaler.kubernetes.io/dra-driver"
	capacityGPUs    = "capacity.cluster-autoscaler.kubernetes.io/gpu-count"
	capacityGPUType = "capacity.cluster-autoscaler.kubernetes.io/gpu-type"
)

// Annotations of a MachineDeployment that record what in the annotations above is from an export. The last one is DRIVER=COUNT.
const (
	exportedLabels = assayv1alpha1.GroupName + "/exported-labels"
	exportedTaints = assayv1alpha1.GroupName + "/exported-taints"
	exportedGPUs   = assayv1alpha1.GroupName + "/exported-gpus"
)

// Labels of the library's rules by which the GPUs of a DRA driver gpu.VENDOR are known: VENDOR/gpu.count has their number, and the other
// one, which ends in the name of the driver, shows that they are not those of a device plugin.
const (
	countLabel    = "/gpu.count"
	completeLabel = nfdv1alpha1.FeatureLabelNamespace + "/dra-complete."
	driverPrefix  = "gpu."
)

// defaultArchitecture is the architecture of the template that Cluster Autoscaler makes if no label says otherwise.
const defaultArchitecture = "amd64"

// MachineDeployment is the part of Cluster API's MachineDeployment that is exported.
type MachineDeployment struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

// clusterAPI renders annotations of MachineDeployments.
func (r *Result) clusterAPI(shapes []assayv1alpha1.NodeShape, opt Options) {
	for _, g := range r.groups(shapes, opt, "label "+assayv1alpha1.MachineDeploymentLabel, func(key map[string]string) string {
		return key[assayv1alpha1.MachineDeploymentLabel]
	}) {
		old := opt.deployment(g.name)
		d := deployment(g, old, opt)
		if d == nil {
			continue
		}
		r.Documents = append(r.Documents, d)
		if old == nil {
			r.note("MachineDeployment %s was not read: the output replaces the labels and taints that others declared in these annotations. "+
				"Pass the MachineDeployment with --from, as kubectl get -o yaml prints it.", g.name)
		}
		if slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool { return len(s.Status.ExtendedResources) > 0 }) {
			r.note("MachineDeployment %s: its extended resources are left out; Cluster Autoscaler has no annotation for them.", g.name)
		}
	}
	if len(r.Documents) > 0 {
		r.note("The output is a part of MachineDeployments. Apply it with %s; use kubectl annotate for those that were created with kubectl apply.",
			applyPart)
		r.noteClusterAutoscaler()
	}
}

// deployment returns the MachineDeployment of a name, in the namespace of the options if there are several; nil if it was not read.
func (o Options) deployment(name string) *MachineDeployment {
	var found *MachineDeployment
	for i := range o.Deployments {
		if d := &o.Deployments[i]; d.Metadata.Name == name && (found == nil || d.Metadata.Namespace == o.Namespace) {
			found = d
		}
	}
	return found
}

// deployment returns the annotations with what others declared and what the shapes have; nil if there is nothing to write.
func deployment(g *group, old *MachineDeployment, opt Options) *MachineDeployment {
	out := &MachineDeployment{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment", Metadata: metadata{
		Name: g.name, Namespace: opt.Namespace, Annotations: map[string]string{},
	}}
	was := map[string]string{}
	if old != nil {
		out.APIVersion, was = cmp.Or(old.APIVersion, out.APIVersion), old.Metadata.Annotations
		out.Metadata.Namespace = cmp.Or(old.Metadata.Namespace, opt.Namespace)
	}
	labels, ownLabels := mergeLabels(g, was)
	taints, ownTaints := mergeTaints(g, was)
	for name, list := range map[string][]string{
		capacityLabels: labels, exportedLabels: ownLabels, capacityTaints: taints, exportedTaints: ownTaints,
	} {
		if len(list) > 0 {
			out.Metadata.Annotations[name] = strings.Join(list, ",")
		}
	}
	driver, count := g.gpus()
	declared := was[capacityDriver]+was[capacityGPUs]+was[capacityGPUType] != "" && was[capacityDriver]+"="+was[capacityGPUs] != was[exportedGPUs]
	if driver != "" && !declared {
		out.Metadata.Annotations[capacityDriver], out.Metadata.Annotations[capacityGPUs] = driver, count
		out.Metadata.Annotations[exportedGPUs] = driver + "=" + count
	}
	recorded := func(annotations map[string]string) bool {
		return annotations[exportedLabels]+annotations[exportedTaints]+annotations[exportedGPUs] != ""
	}
	if !recorded(out.Metadata.Annotations) && !recorded(was) {
		return nil
	}
	return out
}

// gpus returns the DRA driver of the GPUs that all shapes have, and their number; empty: it is not known, or there are several drivers, for
// which Cluster Autoscaler has no annotations.
func (g *group) gpus() (driver, count string) {
	for name, value := range g.all {
		vendor, ok := strings.CutSuffix(name, countLabel)
		if _, published := g.all[completeLabel+driverPrefix+vendor]; !ok || !published {
			continue
		}
		if n, err := strconv.Atoi(value); err != nil || n <= 0 {
			continue
		}
		if driver != "" {
			return "", ""
		}
		driver, count = driverPrefix+vendor, value
	}
	return driver, count
}

// mergeLabels returns the labels of others, as they are written, and then those of the group; and the names of the latter.
func mergeLabels(g *group, was map[string]string) (list, own []string) {
	ours := maps.Clone(g.labels)
	if arch := g.common(corev1.LabelArchStable); arch != "" && arch != defaultArchitecture {
		ours[corev1.LabelArchStable] = arch
	}
	exported := items(was[exportedLabels])
	for _, item := range items(was[capacityLabels]) {
		name, _, _ := strings.Cut(item, "=")
		if !slices.Contains(exported, name) {
			list = append(list, item)
			delete(ours, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		list, own = append(list, name+"="+ours[name]), append(own, name)
	}
	return list, own
}

// mergeTaints returns the taints of others, as they are written, and then those of the group; and the latter.
func mergeTaints(g *group, was map[string]string) (list, own []string) {
	exported := items(was[exportedTaints])
	for _, item := range items(was[capacityTaints]) {
		if !slices.Contains(exported, item) {
			list = append(list, item)
		}
	}
	others := plan.ParseTaints(strings.Join(list, ","))
	for _, t := range g.taints {
		if !slices.ContainsFunc(others, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			list, own = append(list, formatTaint(t)), append(own, formatTaint(t))
		}
	}
	return list, own
}

// items returns the items of a list that is separated by commas.
func items(list string) (out []string) {
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
