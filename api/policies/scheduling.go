package policies

import "embed"

//go:embed scheduling/*.yaml
var scheduling embed.FS

// The MutatingAdmissionPolicies for pods that require features. The administrator chooses which ones to install; none is installed
// by default.
const (
	// PodScheduler sets the scheduler of pods to that of their namespace.
	PodScheduler = "pod-scheduler"
)

// Scheduling returns the YAML of one of these policies and its binding.
func Scheduling(name string) []byte {
	data, err := scheduling.ReadFile("scheduling/" + name + ".yaml")
	if err != nil {
		panic(err) // reading an embedded file cannot fail
	}
	return data
}
