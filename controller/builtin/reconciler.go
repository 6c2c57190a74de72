package builtin

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly/directory"
	"github.com/assay-project/assay/rules/clip"
)

// ConfigMapName is the name of the ConfigMap that shows which built-in rules are active, for users and for `assay rules list`. The
// manager writes it and never reads it: editing it has no effect.
const ConfigMapName = "assay-builtin-rules"

// Keys of the ConfigMap.
const (
	// KeyStatus is Loaded, or Failed if the current files have errors and are not active.
	KeyStatus = "status"
	// KeyDigest identifies the active files.
	KeyDigest = "digest"
	// KeyProblems lists the errors, one per line.
	KeyProblems = "problems"
	// KeyRules is a JSON list of the active objects. See Shown.
	KeyRules = "rules"
)

// Values of KeyStatus.
const (
	StatusLoaded = "Loaded"
	StatusFailed = "Failed"
)

const (
	// maxProblems is the maximum number of errors listed; the log and `assay lint` show all of them.
	maxProblems = 50
	// maxRules is the size of KeyRules in bytes above which specs are omitted: a ConfigMap holds 1 MiB.
	maxRules = 512 << 10
)

// Shown is one object in the ConfigMap.
type Shown struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Spec is the spec in the file; nil if all specs together are too large. For a sensitive object it only has the names of the
	// rules.
	Spec *nfdv1alpha1.NodeFeatureRuleSpec `json:"spec,omitempty"`
}

// reporter writes the ConfigMap.
type reporter struct {
	rules     *directory.Directory
	namespace string
	client    client.Client
	live      client.Reader
}

// retry is the delay after a failed write.
const retry = 10 * time.Second

// Start implements manager.Runnable.
func (r *reporter) Start(ctx context.Context) error {
	for {
		wait := (<-chan time.Time)(nil)
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Cannot report the status of the built-in rules")
			wait = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait:
		case <-r.rules.Changed():
		}
	}
}

func show(s *directory.Set) string {
	list := make([]Shown, len(s.Objects))
	for i, o := range s.Objects {
		list[i] = Shown{Name: o.Rule.Name, File: o.File, Spec: masked(&o.Rule.Spec)}
	}
	text, err := json.Marshal(list)
	if err != nil || len(text) > maxRules {
		for i := range list {
			list[i].Spec = nil
		}
		text, _ = json.Marshal(list)
	}
	return string(text)
}

// masked returns a spec without sensitive content.
func masked(spec *nfdv1alpha1.NodeFeatureRuleSpec) *nfdv1alpha1.NodeFeatureRuleSpec {
	if spec.Sensitive == nil || !*spec.Sensitive {
		return spec
	}
	out := *spec
	out.Rules = make([]nfdv1alpha1.Rule, len(spec.Rules))
	for i := range spec.Rules {
		out.Rules[i].Name = spec.Rules[i].Name
	}
	return &out
}

// data returns the content of the ConfigMap.
func data(latest, inForce *directory.Set) map[string]string {
	out := map[string]string{KeyStatus: StatusLoaded, KeyDigest: inForce.Digest, KeyRules: show(inForce)}
	if len(latest.Problems) > 0 {
		out[KeyStatus] = StatusFailed
		out[KeyProblems] = clip.Join(latest.Problems, "\n", maxProblems)
	}
	return out
}

// report writes the ConfigMap if its content has changed.
func (r *reporter) report(ctx context.Context) error {
	latest, inForce := r.rules.State()
	want := data(latest, inForce)
	m := &corev1.ConfigMap{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: ConfigMapName}, m)
	if apierrors.IsNotFound(err) {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: ConfigMapName}
		m.Data = want
		return r.client.Create(ctx, m)
	}
	if err != nil || maps.Equal(m.Data, want) {
		return err
	}
	before := m.DeepCopy()
	m.Data, m.BinaryData = want, nil
	return r.client.Patch(ctx, m, client.MergeFrom(before))
}
