package policies

import "embed"

//go:embed scheduling/*.yaml
var scheduling embed.FS

// The MutatingAdmissionPolicies for pods that require features.
const (
	// PodScheduler sets the scheduler of pods to that of their namespace.
	PodScheduler = "pod-scheduler"
	// FeatureRequest writes the label of the NodeFeatureRequest that a pod names into its node selector.
	FeatureRequest = "feature-request"
)

// Scheduling returns the YAML of these policies and their bindings.
func Scheduling(name string) []byte {
	data, err := scheduling.ReadFile("scheduling/" + name + ".yaml")
	if err != nil {
		panic(err) // reading an embedded file cannot fail
	}
	return data
}
