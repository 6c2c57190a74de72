//go:build !linux

package memory

// ForgetCode does nothing, since other systems account for memory differently.
func ForgetCode() {}
