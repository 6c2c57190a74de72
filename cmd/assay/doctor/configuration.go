package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/check"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// configurations reviews the ConfigMaps that the programs mount, with the programs' own readers. A program with a configuration that has
// errors does not start; one that runs keeps the last valid one, and nothing else shows it.
func (e *examination) configurations(ctx context.Context) error {
	read, wrong := map[string]bool{}, false
	review := func(meta *metav1.ObjectMeta, kind string, pod *corev1.PodSpec) error {
		for i := range pod.Volumes {
			source := pod.Volumes[i].ConfigMap
			if source == nil || read[meta.Namespace+"/"+source.Name] {
				continue
			}
			read[meta.Namespace+"/"+source.Name] = true
			m, err := e.c.ConfigMap(ctx, meta.Namespace, source.Name)
			switch {
			case cluster.IsNotFound(err):
				continue // pods that need it do not start, which is reported
			case err != nil:
				return err
			}
			problems, err := errorsIn(m)
			if err != nil {
				return err
			}
			if len(problems) == 0 {
				continue
			}
			wrong = true
			text := problems[0]
			if more := len(problems) - 1; more > 0 {
				text += fmt.Sprintf(" (and %s)", clip.Count(more, "more error"))
			}
			e.report("configuration", Error, fmt.Sprintf("ConfigMap %s/%s, the configuration of %s %s, is rejected: %s; the last valid configuration stays active until a restart",
				meta.Namespace, source.Name, kind, meta.Name, text), "Correct the values of the release, and run helm upgrade")
		}
		return nil
	}
	for i := range e.deployments {
		if err := review(&e.deployments[i].ObjectMeta, "Deployment", &e.deployments[i].Spec.Template.Spec); err != nil {
			return err
		}
	}
	for i := range e.daemonSets {
		if err := review(&e.daemonSets[i].ObjectMeta, "DaemonSet", &e.daemonSets[i].Spec.Template.Spec); err != nil {
			return err
		}
	}
	if len(read) > 0 && !wrong {
		e.ok("configuration", "%s of the programs without errors", clip.Count(len(read), "ConfigMap"))
	}
	return nil
}

// errorsIn returns the errors of the configurations in a ConfigMap.
func errorsIn(m *corev1.ConfigMap) (out []string, err error) {
	m.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	m.ManagedFields = nil
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, err
	}
	file := manifest.Parse(m.Name, data)
	checker := check.New(review.Known{}, file)
	checker.Sealed = true
	for _, found := range checker.File(file) {
		if found.Severity == manifest.Error {
			out = append(out, found.Path+": "+found.Message)
		}
	}
	return out, nil
}
