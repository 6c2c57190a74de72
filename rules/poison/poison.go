// Package poison overwrites memory that is about to be reused or dropped, in test builds with the tag "poison".
//
// Code that keeps a reference to such memory reads the values of another object later, and only if something else was written there in
// the meantime. With the tag it reads 0xAA at once, so that any test of it fails. Without the tag the functions do nothing.
package poison

// Byte is the value of overwritten bytes. It is not valid UTF-8.
const Byte = 0xAA
