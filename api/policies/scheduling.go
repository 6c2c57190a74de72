package policies

import "embed"

//go:embed scheduling/*.yaml
var scheduling embed.FS

// The MutatingAdmissionPolicies for pods that ask for features. Which of them a cluster has is for its administrator to
// choose; none is installed by default.
const (
	// PodScheduler gives pods the scheduler that their namespace names.
	PodScheduler = "pod-scheduler"
	// PodMarker gives them the marker resource.
	PodMarker = "pod-marker"
)

// Scheduling returns the YAML of one of these policies with its binding.
func Scheduling(name string) []byte {
	data, err := scheduling.ReadFile("scheduling/" + name + ".yaml")
	if err != nil {
		panic(err) // it is embedded under the names above
	}
	return data
}
