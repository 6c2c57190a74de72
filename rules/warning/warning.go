// Package warning holds warnings about valid input that is probably not intended.
package warning

// Warning is about valid input that is probably not intended.
type Warning struct {
	// Path of the field, such as spec.rules[2].labels[foo].
	Path string
	// Message describes the problem and what to write instead.
	Message string
	// Rank orders warnings if only some can be shown. A lower rank is more severe.
	Rank int
	// Defect marks input that NFD drops silently at run time. Strict admission rejects it.
	Defect bool
	// Fix is the change that the message proposes. It is nil if the message only describes.
	Fix *Fix
}

// The ranks of warnings, most severe first.
const (
	// Dangerous is for input that may take a cluster down.
	Dangerous = 5
	// Defect is for input that is dropped at run time.
	Defect = 10
	// Suspicious is for input that almost certainly does not mean what its author intended.
	Suspicious = 20
	// Unlikely is for input that may well be correct, and for style.
	Unlikely = 30
)

// String returns the path and the message.
func (w Warning) String() string { return w.Path + ": " + w.Message }
