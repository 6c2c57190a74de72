package world

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
)

// LeftOut is the reason why an object's rules are left out, all or one of them.
type LeftOut struct {
	Object string
	Err    error
	// Unread is set if what the object refers to could not be read, which the controller may be able to.
	Unread bool
}

func (l LeftOut) Error() string { return l.Object + ": " + l.Err.Error() }

func (l LeftOut) Unwrap() error { return l.Err }

// Program compiles rules with everything they refer to, as the controller does. It leaves out rules with errors, as the controller
// does, and returns an error that joins a LeftOut for each.
func (w *World) Program(ctx context.Context, list []nfdv1alpha1.NodeFeatureRule) (*rules.Program, error) {
	accepted := w.accepted(ctx)
	assembler := assembly.New(assembly.Options{
		Definition: func() definition.Status { return w.definition },
		Accepted:   func(uid types.UID) (assembly.Accepted, bool) { was, known := accepted[uid]; return was, known },
		Rules:      w.Limits, Namespace: w.Own, DefaultTemplate: w.Settings.DefaultTemplate, Version: build.Version(),
		KeptName: assembly.KeptName(w.Settings.Instance),
	}, w)
	var sets []*rules.RuleSet
	var errs []error
	room := rules.MaxClusterSize
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b nfdv1alpha1.NodeFeatureRule) int { return assembly.OldestFirst(&a, &b) })
	for i := range list {
		object, err := assembler.Assemble(ctx, &list[i], nil, room)
		room -= object.Size()
		if err != nil {
			errs = append(errs, LeftOut{list[i].Name, err, true})
			continue
		}
		if object.Set != nil {
			sets = append(sets, object.Set)
		}
		for _, p := range []*assembly.Error{object.Refused, object.Unresolved, object.Lost} {
			if p != nil && (object.Set == nil || p == object.Lost) {
				errs = append(errs, LeftOut{list[i].Name, p, false})
			}
		}
		for _, e := range object.Errors {
			errs = append(errs, LeftOut{list[i].Name, e, false})
		}
	}
	for i := range w.BuiltIn {
		opt := w.Limits
		opt.BuiltIn = true
		set, _ := rules.Compile(&w.BuiltIn[i], opt)
		sets = append(sets, set)
	}
	return rules.Link(w.Limits, sets...), errors.Join(errs...)
}

// accepted returns what the controller has accepted of the objects of the cluster, if that decides what is evaluated of them.
func (w *World) accepted(ctx context.Context) map[types.UID]assembly.Accepted {
	if w.definition.State == definition.Whole && w.definition.UID == "" {
		return nil // it was not read: the objects are not those of a cluster
	}
	m, err := w.ConfigMap(ctx, assembly.KeptName(w.Settings.Instance))
	if err != nil {
		return nil
	}
	return assembly.DecodeAccepted(m.Data[assembly.AcceptedKey])
}

// LeftOuts returns the objects in an error of program.
func LeftOuts(err error) (out []LeftOut) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return nil
	}
	for _, e := range joined.Unwrap() {
		var l LeftOut
		if errors.As(e, &l) {
			out = append(out, l)
		}
	}
	return out
}

// Withholding returns what the controller does not write, by its settings or, if they are unknown, by flags and the conditions of rules.
func (w *World) Withholding() rules.Withholding {
	out := w.Settings.Withholding()
	if w.Installed {
		return out
	}
	out.Losses = false // unknown
	for i := range w.Rules {
		if c := meta.FindStatusCondition(w.Rules[i].Status.Conditions, nfdv1alpha1.ConditionWithheld); c != nil && c.Status == metav1.ConditionTrue {
			out.Read(c.Reason, c.Message)
		}
	}
	return out
}

// Desired returns the settings that decide what is desired of Nodes, as far as they are known.
func (w *World) Desired() desired.Settings {
	out := w.Settings.Desired()
	out.Withholding = w.Withholding()
	out.Policy.Taints = !out.Withholding.Taints
	out.Policy.KeepForeign = out.Policy.KeepForeign && w.Installed
	return out
}

// Template implements assembly.Source.
func (w *World) Template(_ context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	if t := w.Templates[name]; t != nil {
		return t, nil
	}
	if err := w.Unread["nodefeatureruletemplates"]; err != nil {
		return nil, err
	}
	return nil, absent("nodefeatureruletemplates", name)
}

// store reads Secrets and ConfigMaps from a cluster or from files.
type store interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Secret implements assembly.Source.
func (w *World) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	out, err := w.Kept.Secret(ctx, w.Own, name)
	if cluster.IsNotFound(err) {
		return nil, absent("secrets", name)
	}
	return out, err
}

// ConfigMap implements assembly.Source. It returns no object if the user may not read it.
func (w *World) ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	out, err := w.Kept.ConfigMap(ctx, w.Own, name)
	if cluster.IsNotFound(err) || err != nil && name == assembly.SharedKeptName {
		return nil, absent("configmaps", name)
	}
	return out, err
}

func absent(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

// filed holds the Secrets and ConfigMaps in files, by namespace and name.
type filed struct {
	secrets    map[string]*corev1.Secret
	configMaps map[string]*corev1.ConfigMap
}

func (f *filed) addSecret(d *manifest.Document) error {
	s := &corev1.Secret{Data: map[string][]byte{}}
	if err := manifest.DecodeObject(d, s); err != nil {
		return err
	}
	for key, text := range s.StringData { // the API server converts stringData in the same way
		s.Data[key] = []byte(text)
	}
	f.secrets[s.Namespace+"/"+s.Name] = s
	return nil
}

func (f *filed) addConfigMap(d *manifest.Document) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	if err := manifest.DecodeObject(d, m); err != nil {
		return nil, err
	}
	f.configMaps[m.Namespace+"/"+m.Name] = m
	return m, nil
}

// Secret implements store.
func (f *filed) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s := f.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, absent("secrets", name)
}

// ConfigMap implements store.
func (f *filed) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if m := f.configMaps[namespace+"/"+name]; m != nil {
		return m, nil
	}
	return nil, absent("configmaps", name)
}
