package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/rights"
	"github.com/assay-project/assay/rules/clip"
)

// parallelReviews is the maximum number of SubjectAccessReviews at once.
const parallelReviews = 8

// account is the ServiceAccount of a component.
type account struct {
	component, namespace, name string
	pod                        *corev1.PodSpec
}

func (a *account) user() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

// accounts returns the ServiceAccounts of the components.
func (e *examination) accounts() (out []account) {
	add := func(component, namespace string, pod *corev1.PodSpec) {
		name := pod.ServiceAccountName
		if name == "" {
			name = "default"
		}
		out = append(out, account{component, namespace, name, pod})
	}
	for _, component := range []string{"controller", "webhook"} {
		for _, d := range e.part(component) {
			add(component, d.Namespace, &d.Spec.Template.Spec)
		}
	}
	for _, d := range e.agents() {
		add("worker", d.Namespace, &d.Spec.Template.Spec)
	}
	return out
}

// rights checks that the API server lets the ServiceAccounts do what they must. Missing rights are the cause of most else.
func (e *examination) rights(ctx context.Context) error {
	e.lacking = map[string]bool{}
	checked := 0
	for _, a := range e.accounts() {
		needed := needs(&a)
		refused, err := e.refused(ctx, &a, needed)
		if err != nil {
			return fmt.Errorf("the rights of the ServiceAccounts: %w", err)
		}
		checked += len(needed)
		if len(refused) == 0 {
			continue
		}
		e.lacking[a.component] = true
		e.report("rights", Error, fmt.Sprintf("ServiceAccount %s/%s may not %s: %s", a.namespace, a.name, clip.Join(described(refused), ", ", maxListed), refused[0].Without),
			fmt.Sprintf("The roles of the chart grant it: run helm upgrade, and see their bindings: kubectl auth can-i %s %s --as %s%s",
				refused[0].Verb, qualified(&refused[0]), a.user(), in(&a, &refused[0])))
	}
	if len(e.lacking) == 0 {
		e.ok("rights", "the ServiceAccounts have the %d rights that they need", checked)
	}
	return nil
}

func in(a *account, r *rights.Right) string {
	if r.Own {
		return " -n " + a.namespace
	}
	return ""
}

// needs returns the rights that a component needs with its arguments.
func needs(a *account) (out []rights.Right) {
	has := func(flag string) bool {
		return slices.ContainsFunc(a.pod.Containers, func(c corev1.Container) bool { return slices.Contains(c.Args, flag) })
	}
	given := !slices.ContainsFunc(a.pod.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--cert-secret") })
	})
	instance := instanceOf(a.pod)
	for _, r := range rights.Of(a.component) {
		switch {
		case a.component == "webhook" && (r.Group == "admissionregistration.k8s.io" || r.Resource == "secrets" && r.Name != "") && given:
			continue // the certificate is given
		case a.component == "webhook" && has("--node-warnings=false") && !slices.Contains([]string{"namespaces", "nodefeatureruletemplates", "deviceclasses"}, r.Resource) && r.Name == "":
			continue
		case r.Resource == "secrets" && r.Name != "":
			r.Name = certificateSecret(a.pod)
		case r.Name == nfdv1alpha1.LeaseName(""):
			r.Name = nfdv1alpha1.LeaseName(instance)
		case strings.HasPrefix(r.Name, "assay-kept-rules") && instance != "":
			r.Name += "-" + instance
		}
		out = append(out, r)
	}
	return out
}

// refused returns the rights that an account does not have, in the order of importance.
func (e *examination) refused(ctx context.Context, a *account, needed []rights.Right) (out []rights.Right, err error) {
	no := make([]bool, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReviews)
	for i := range needed {
		group.Go(func() error {
			r := &needed[i]
			resource, sub, _ := strings.Cut(r.Resource, "/")
			of := authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Name: r.Name}
			if r.Own {
				of.Namespace = a.namespace
			}
			allowed, err := e.c.Allowed(ctx, a.user(), of)
			no[i] = !allowed
			return err
		})
	}
	err = group.Wait()
	for i := range needed {
		if no[i] {
			out = append(out, needed[i])
		}
	}
	return out, err
}

// described names rights, the verbs on one resource together.
func described(list []rights.Right) (out []string) {
	verbs := map[string][]string{}
	for i := range list {
		on := strings.TrimSpace(qualified(&list[i]) + " " + list[i].Name)
		if verbs[on] == nil {
			out = append(out, on)
		}
		verbs[on] = append(verbs[on], list[i].Verb)
	}
	for i, on := range out {
		out[i] = strings.Join(verbs[on], "/") + " " + on
	}
	return out
}

// qualified returns the resource with its API group, as kubectl takes it.
func qualified(r *rights.Right) string {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	if r.Group != "" {
		resource += "." + r.Group
	}
	if sub != "" {
		resource += "/" + sub
	}
	return resource
}
