package placement

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
)

// driverOf matches the name of the driver in a selector of a DeviceClass, in the form that the documentation of Kubernetes shows. Other
// selectors are not evaluated.
var driverOf = regexp.MustCompile(`device\.driver\s*==\s*["']([^"']+)["']`)

// deviceClasses are the DeviceClasses of a cluster, and the ResourceSlices with the devices.
type deviceClasses struct {
	list    []resourcev1.DeviceClass
	slices  []resourcev1.ResourceSlice
	unknown error // why the devices are unknown
}

func (d *deviceClasses) find(name string) *resourcev1.DeviceClass {
	for i := range d.list {
		if d.list[i].Name == name {
			return &d.list[i]
		}
	}
	return nil
}

// drivers returns the drivers that the selectors of a class name; none: its devices can be of any driver.
func drivers(class *resourcev1.DeviceClass) (out []string) {
	for _, s := range class.Spec.Selectors {
		if s.CEL != nil {
			for _, match := range driverOf.FindAllStringSubmatch(s.CEL.Expression, -1) {
				out = append(out, match[1])
			}
		}
	}
	return out
}

// reaches reports whether a node may have a device of a class. Devices that are not of one node can be reached from it.
func (d *deviceClasses) reaches(class *resourcev1.DeviceClass, node string) bool {
	of := drivers(class)
	return d.unknown != nil || slices.ContainsFunc(d.slices, func(s resourcev1.ResourceSlice) bool {
		local := ptr.Deref(s.Spec.NodeName, "")
		return (local == "" || local == node) && len(s.Spec.Devices) > 0 && (len(of) == 0 || slices.Contains(of, s.Spec.Driver))
	})
}

// requirement returns the requirement of a part of a pod on a device of classes, of which one is enough.
func (d *deviceClasses) requirement(origin string, names []string) podlabels.Requirement {
	text, all := "", []*resourcev1.DeviceClass{}
	for _, name := range names {
		if text != "" {
			text += " or "
		}
		text += "DeviceClass " + name
		class := d.find(name)
		switch {
		case class == nil:
			text += ", which does not exist"
			continue
		case len(drivers(class)) > 0:
			text += fmt.Sprintf(" of %s", drivers(class)[0])
		}
		all = append(all, class)
	}
	return podlabels.New(origin, text,
		func(node *corev1.Node) bool {
			return slices.ContainsFunc(all, func(c *resourcev1.DeviceClass) bool { return d.reaches(c, node.Name) })
		},
		func(*corev1.Node) string {
			if len(all) == 0 {
				return "the class does not exist"
			}
			return "no ResourceSlice has a device of it for the node"
		})
}

// devices returns what a pod requires of devices, by its resource claims, and adds the alternatives of DeviceClasses to resources that these
// claim. The error says what is unknown.
func podDevices(ctx context.Context, w *world.World, c *cluster.Client, pod *corev1.Pod, resources []podlabels.Requirement) (out []podlabels.Requirement, err error) {
	extended := slices.ContainsFunc(resources, func(r podlabels.Requirement) bool { return r.Resource != "" })
	if len(pod.Spec.ResourceClaims) == 0 && !extended {
		return nil, nil
	}
	if c == nil {
		if len(pod.Spec.ResourceClaims) > 0 {
			err = fmt.Errorf("the resource claims of the pod are not checked: files have no DeviceClasses")
		}
		return nil, err
	}
	d := &deviceClasses{slices: w.Objects.Slices}
	if d.list, err = c.DeviceClasses(ctx); err != nil {
		return nil, fmt.Errorf("the devices that the pod requires are unknown: %w", err)
	}
	if d.slices == nil && w.NoDevices == "" {
		d.unknown = fmt.Errorf("the ResourceSlices could not be read")
	}
	claimed := resourceslice.Claimed(d.list)
	for i := range resources {
		if class := d.find(claimed[resources[i].Resource]); class != nil {
			resources[i].Or(func(node *corev1.Node) bool { return d.reaches(class, node.Name) }, "it has no device of DeviceClass "+class.Name)
		}
	}
	for _, claim := range pod.Spec.ResourceClaims {
		origin := "resource claim " + claim.Name
		name, ofTemplate := ptr.Deref(claim.ResourceClaimName, ""), false
		if name == "" {
			name, ofTemplate = ptr.Deref(claim.ResourceClaimTemplateName, ""), true
		}
		kind := map[bool]string{false: "ResourceClaim", true: "ResourceClaimTemplate"}[ofTemplate]
		spec, err := c.Claim(ctx, pod.Namespace, name, ofTemplate)
		if cluster.IsNotFound(err) {
			text := fmt.Sprintf("%s %s/%s, which does not exist", kind, pod.Namespace, name)
			out = append(out, podlabels.New(origin, text, func(*corev1.Node) bool { return false }, func(*corev1.Node) string { return text }))
			continue
		}
		if err != nil {
			return out, fmt.Errorf("what %s %s/%s requests is unknown: %w", kind, pod.Namespace, name, err)
		}
		for _, request := range spec.Devices.Requests {
			var names []string
			if request.Exactly != nil {
				names = append(names, request.Exactly.DeviceClassName)
			}
			for _, alternative := range request.FirstAvailable {
				names = append(names, alternative.DeviceClassName)
			}
			out = append(out, d.requirement(origin, names))
		}
	}
	return out, d.unknown
}
