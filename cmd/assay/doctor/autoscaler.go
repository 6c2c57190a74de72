package doctor

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
)

// autoscaler checks that Cluster Autoscaler, if it runs in the cluster, knows the start-up taint that the controller removes: it adds node
// after node otherwise. It does not see one that a cloud provider runs elsewhere.
func (e *examination) autoscaler(ctx context.Context) error {
	all, err := e.c.Deployments(ctx, "", "")
	if cluster.IsForbidden(err) {
		return nil // for users of one namespace
	}
	if err != nil {
		return err
	}
	for _, d := range e.part("controller") {
		if text, fix := unknownTaint(d, all); text != "" {
			e.report("autoscaler", Warning, text, fix)
		}
	}
	return nil
}

// unknownTaint returns what is wrong with the start-up taint of a controller, and how to correct it; empty if nothing is.
func unknownTaint(controller *appsv1.Deployment, all []appsv1.Deployment) (text, fix string) {
	const flag = "--startup-taint="
	var taint string
	for _, c := range controller.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			if key, ok := strings.CutPrefix(arg, flag); ok {
				taint = key
			}
		}
	}
	if taint == "" || strings.HasPrefix(taint, assayv1alpha1.StartupTaintNamespace+"/") {
		return "", ""
	}
	for i := range all {
		d := &all[i]
		for _, c := range d.Spec.Template.Spec.Containers {
			args := slices.Concat(c.Command, c.Args)
			if !isAutoscaler(&c) || slices.Contains(args, flag+taint) {
				continue
			}
			return fmt.Sprintf("Cluster Autoscaler (Deployment %s/%s) does not know the start-up taint %s: it takes a new node for one on which the pods do not fit, and adds more",
					d.Namespace, d.Name, taint),
				fmt.Sprintf("Set controller.startupTaint to a key of %s/, or pass %s%s to the autoscaler", assayv1alpha1.StartupTaintNamespace, flag, taint)
		}
	}
	return "", ""
}

// isAutoscaler reports whether a container runs Cluster Autoscaler, by its image and command.
func isAutoscaler(c *corev1.Container) bool {
	image, _, _ := strings.Cut(path.Base(c.Image), ":")
	return strings.HasPrefix(image, "cluster-autoscaler") ||
		slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(s string) bool { return path.Base(s) == "cluster-autoscaler" })
}
