//go:build !poison

package poison

// Enabled reports whether this is a build with the tag.
const Enabled = false

// Bytes overwrites a buffer up to its capacity.
func Bytes([]byte) {}

// Text calls use with a string that use must not keep, nor any part of it. With the tag this is a copy, which is overwritten as soon as
// use has returned.
func Text(text string, use func(text string) error) error { return use(text) }
