package system

import (
	"bytes"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

// maxReleaseKeys is the maximum number of variables in an os-release file; distributions write about 15.
const maxReleaseKeys = 256

// ParseOSRelease returns the variables in an os-release file, unquoted as in a shell, and the elements VERSION_ID.major and
// VERSION_ID.minor if VERSION_ID begins with a number; without a second number there is no minor. It skips lines that are not
// assignments.
func ParseOSRelease(data []byte) map[string]string {
	release := map[string]string{}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		name, value, ok := bytes.Cut(line, []byte("="))
		if !ok || !variable(name) || len(release) >= maxReleaseKeys {
			continue
		}
		release[string(name)] = host.Clean(unquote(value))
	}
	if id, ok := release["VERSION_ID"]; ok {
		if major, minor, ok := splitVersion(id); ok {
			release["VERSION_ID.major"] = major
			if minor != "" {
				release["VERSION_ID.minor"] = minor
			}
		}
	}
	return release
}

// splitVersion returns the leading two numbers of a version. The rest must begin with a dot: "12-sid" has no comparable major
// number.
func splitVersion(v string) (major, minor string, ok bool) {
	parts := strings.SplitN(v, ".", 3)
	if !digits(parts[0]) {
		return "", "", false
	}
	if len(parts) > 1 {
		if !digits(parts[1]) {
			return parts[0], "", true
		}
		minor = parts[1]
	}
	return parts[0], minor, true
}

// unquote removes quotes and backslashes, see os-release(5): quoting is that of a shell, where a single-quoted string has no
// escapes.
func unquote(v []byte) []byte {
	if len(v) >= 2 && v[0] == '\'' && v[len(v)-1] == '\'' {
		return v[1 : len(v)-1]
	}
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
		}
		out = append(out, v[i])
	}
	return out
}

// variable reports whether s is a valid name of a shell variable.
func variable(name []byte) bool {
	if len(name) == 0 || len(name) > 128 {
		return false
	}
	for i, c := range name {
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
