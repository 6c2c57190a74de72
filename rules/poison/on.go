//go:build poison

package poison

import "unsafe"

// Enabled reports whether this is a build with the tag.
const Enabled = true

// Bytes overwrites a buffer up to its capacity.
func Bytes(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = Byte
	}
}

// Text calls use with a string that use must not keep, nor any part of it. With the tag this is a copy, which is overwritten as soon as
// use has returned.
func Text(text string, use func(text string) error) error {
	memory := []byte(text)
	defer Bytes(memory)
	return use(unsafe.String(unsafe.SliceData(memory), len(memory)))
}
