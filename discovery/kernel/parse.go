package kernel

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery/host"
)

const (
	// maxModules is the maximum number of modules: a distribution builds about 6,000, a machine loads about 200.
	maxModules = 20000
	// maxNameLength is the maximum length of the name of a module or an option; the kernel's MODULE_NAME_LEN is 56 on 64-bit
	// machines.
	maxNameLength = 128
)

// ParseVersion splits the kernel release of uname(2), such as "6.1.0-18-amd64". The element full is the whole release as a valid
// label value; major, minor and revision are the leading numbers, where a missing revision is empty. A release without leading
// numbers has only full.
func ParseVersion(release string) map[string]string {
	full := strings.Map(func(r rune) rune {
		if alphanumeric(r) || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, release)
	full = strings.TrimFunc(full, func(r rune) bool { return !alphanumeric(r) })
	// A label value has at most 63 characters; the kernel's own limit is 64 including the final NUL.
	if len(full) > 63 {
		full = strings.TrimRightFunc(full[:63], func(r rune) bool { return !alphanumeric(r) })
	}
	v := map[string]string{"full": full}

	major, rest := number(full)
	if major == "" {
		return v
	}
	v["major"], v["minor"], v["revision"] = major, "", ""
	if rest, found := strings.CutPrefix(rest, "."); found {
		v["minor"], rest = number(rest)
		if rest, found = strings.CutPrefix(rest, "."); found && v["minor"] != "" {
			v["revision"], _ = number(rest)
		}
	}
	return v
}

// ParseModules returns the module names in /proc/modules, the first word of each line, see proc_modules(5). The second is the size.
func ParseModules(data []byte) ([]string, error) {
	var names []string
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 2 || !validName(f[0]) || !bytes.HasSuffix(line, []byte("\n")) {
			return nil, fmt.Errorf("%.40q is not a module with its size", line)
		}
		if _, err := strconv.ParseUint(string(f[1]), 10, 64); err != nil || len(names) >= maxModules {
			return nil, fmt.Errorf("%.40q is not a module with its size", line)
		}
		names = append(names, string(f[0]))
	}
	return names, nil
}

// ParseBuiltin returns the module names in modules.builtin, whose lines are the paths that the modules would have, see
// Documentation/kbuild/kbuild.rst. The module name has "_" where the file name may have "-".
func ParseBuiltin(data []byte) []string {
	var names []string
	for line := range bytes.Lines(data) {
		name := path.Base(string(bytes.TrimSpace(line)))
		name, ok := strings.CutSuffix(name, ".ko")
		name = strings.ReplaceAll(name, "-", "_")
		if ok && validName([]byte(name)) && len(names) < maxModules {
			names = append(names, name)
		}
	}
	return names
}

// ParseConfig returns the options that are set in a kernel configuration, without the prefix CONFIG_ and without quotes. An option
// that "is not set" is a comment in the file, so it is absent.
func ParseConfig(data []byte) map[string]string {
	// Lines of a configuration have about 28 bytes, and two thirds of them set an option.
	options := make(map[string]string, len(data)/40)
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("CONFIG_"))
		if !ok {
			continue
		}
		name, value, ok := bytes.Cut(rest, []byte("="))
		if !ok || !validName(name) {
			continue
		}
		options[string(name)] = configValue(value)
	}
	return options
}

// configValue avoids an allocation for the most frequent values.
func configValue(raw []byte) string {
	switch raw = bytes.TrimSpace(raw); string(raw) {
	case "y":
		return "y"
	case "m":
		return "m"
	case `""`:
		return ""
	}
	if len(raw) >= 2 && raw[0] == '"' && raw[len(raw)-1] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	return host.Clean(raw)
}

// validName reports whether s is a valid name of a module or an option: letters, digits, "_" and "-".
func validName(name []byte) bool {
	if len(name) == 0 || len(name) > maxNameLength {
		return false
	}
	for _, c := range name {
		if !alphanumeric(rune(c)) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// number splits the leading digits from a string.
func number(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
