package podadmission

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// templates says where each kind of workload keeps the metadata of its pods.
var templates = map[string][]string{
	"Pod":                   {"metadata"},
	"PodTemplate":           {"template", "metadata"},
	"Deployment":            {"spec", "template", "metadata"},
	"ReplicaSet":            {"spec", "template", "metadata"},
	"ReplicationController": {"spec", "template", "metadata"},
	"StatefulSet":           {"spec", "template", "metadata"},
	"DaemonSet":             {"spec", "template", "metadata"},
	"Job":                   {"spec", "template", "metadata"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template", "metadata"},
}

// Metadata finds what the pods of a workload will be labelled and annotated with, and the path of it. It is nil for kinds
// that make no pods.
func Metadata(kind string, object []byte) (*metav1.ObjectMeta, *field.Path, error) {
	parts, ok := templates[kind]
	if !ok {
		return nil, nil, nil
	}
	path := field.NewPath(parts[0], parts[1:]...)
	raw := json.RawMessage(object)
	for _, part := range parts {
		var level map[string]json.RawMessage
		if err := json.Unmarshal(raw, &level); err != nil {
			return nil, path, fmt.Errorf("read %s: %w", path, err)
		}
		if raw = level[part]; raw == nil {
			return &metav1.ObjectMeta{}, path, nil
		}
	}
	var meta metav1.ObjectMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		return nil, path, fmt.Errorf("read %s: %w", path, err)
	}
	return &meta, path, nil
}

// Check compiles what the annotations of a workload's pods ask for. Errors and warnings have the paths of the workload.
func Check(kind string, object []byte, opt rules.Options) (*requirements.Ask, *rules.Report, error) {
	meta, path, err := Metadata(kind, object)
	if err != nil || meta == nil {
		return nil, &rules.Report{}, err
	}
	ask, report := requirements.Annotations(meta.Annotations, path, opt)
	return ask, report, nil
}
