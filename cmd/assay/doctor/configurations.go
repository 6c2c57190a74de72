package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/settings"
)

// configurations checks the ConfigMaps that the pods of workers and controllers mount: programs that run keep the last valid configuration,
// and do not start with an invalid one.
func (e *examination) configurations(ctx context.Context) error {
	var valid []string
	seen := map[string]bool{}
	examine := func(namespace string, pod *corev1.PodSpec) error {
		scheduling := slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasSuffix(arg, settings.GateScheduling+"=true") })
		})
		for _, volume := range pod.Volumes {
			if volume.ConfigMap == nil || seen[namespace+"/"+volume.ConfigMap.Name] {
				continue
			}
			name := volume.ConfigMap.Name
			seen[namespace+"/"+name] = true
			config, err := e.c.ConfigMap(ctx, namespace, name)
			if cluster.IsNotFound(err) {
				continue // optional, or the pods do not start, which is another finding
			}
			if err != nil {
				return err
			}
			errs := check.ConfigurationErrors(config.Data, scheduling)
			if len(errs) == 0 {
				valid = append(valid, namespace+"/"+name)
				continue
			}
			e.report("configuration", Error, fmt.Sprintf("ConfigMap %s/%s: %s: running programs keep the previous configuration, and do not start again with this one",
				namespace, name, clip.Join(errs, "; ", maxListed)), fmt.Sprintf("kubectl -n %s edit configmap %s", namespace, name))
		}
		return nil
	}
	namespaces, before := []string{}, len(e.found)
	for _, d := range e.agents() {
		namespaces = append(namespaces, d.Namespace)
		if err := examine(d.Namespace, &d.Spec.Template.Spec); err != nil {
			return err
		}
	}
	if len(e.found) == before { // otherwise the workers reject what was reported
		if err := e.rejections(ctx, namespaces); err != nil {
			return err
		}
	}
	for _, d := range e.part("controller") {
		if err := examine(d.Namespace, &d.Spec.Template.Spec); err != nil {
			return err
		}
	}
	if len(valid) > 0 {
		slices.Sort(valid)
		e.ok("configuration", "the configurations in the ConfigMaps %s are valid", strings.Join(valid, ", "))
	}
	return nil
}

// rejections reports workers that reject their configuration although those in the ConfigMaps are valid: they have not read a correction, or
// are of another version. Namespaces are those of the workers.
func (e *examination) rejections(ctx context.Context, namespaces []string) error {
	objects, err := e.c.FeatureObjects(ctx)
	if err != nil && !cluster.IsNotFound(err) { // without the definition, which is another finding, there are none
		return err
	}
	nodes := map[string][]string{} // by error
	for i := range objects {
		o := &objects[i]
		own := slices.Contains(namespaces, o.Namespace) && o.Name == o.Labels[nfdv1alpha1.NodeNameLabel]
		if text := nodefeature.Rejected(o); own && text != "" {
			nodes[text] = append(nodes[text], o.Name)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(nodes)) {
		e.report("configuration", Error, fmt.Sprintf("%s: %s: the worker keeps its previous configuration: %s",
			clip.Count(len(nodes[text]), "Node"), some(nodes[text]), text),
			"A correction reaches a worker within about a minute. If the finding stays, restart its pod, and compare the version of its image with this one")
	}
	return nil
}
