package serving

import "github.com/assay-project/assay/extender"

// Answer is what assay why says about a pod.
type Answer struct {
	extender.Explanation
	// Ways is what makes the scheduler respect the requirements.
	Ways []Way `json:"ways,omitempty"`
	// Warnings are the labels and annotations of the pod that look like those of Assay and mean nothing.
	Warnings []string `json:"warnings,omitempty"`
}
