package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxReadable is the maximum number of characters of a name before its hash: it leaves room for a readable table.
	maxReadable = 60
	// hashBytes is the length of the hash in a name. It distinguishes keys with the same readable part: a cut or replaced character.
	hashBytes = 4
)

// anyNode are labels that nearly every Node has. They are part of a key, but do not make one.
var anyNode = []string{corev1.LabelArchStable, corev1.LabelOSStable}

// keyOf returns the labels that make the shape of a node, and the name of the shape; empty if the node has none, because it is in no
// node group and has no instance type.
func keyOf(labels map[string]string, names []string) (name string, key map[string]string) {
	group := false
	for _, n := range names {
		value, ok := labels[n]
		if !ok {
			continue
		}
		if key == nil {
			key = map[string]string{}
		}
		key[n] = value
		group = group || !slices.Contains(anyNode, n)
	}
	if !group {
		return "", nil
	}
	return nameOf(key, names), key
}

// nameOf returns the name of a shape: the values of its key in the order of the setting, and a hash of the key.
func nameOf(key map[string]string, names []string) string {
	var readable strings.Builder
	hash := sha256.New()
	for _, n := range slices.Sorted(slices.Values(names)) {
		if value, ok := key[n]; ok {
			hash.Write([]byte(n + "=" + value + "\n")) // neither contains these characters
		}
	}
	for _, n := range names {
		if value := key[n]; value != "" {
			readable.WriteString(strings.Map(inName, strings.ToLower(value)) + "-")
		}
	}
	text := readable.String()
	text = strings.Trim(text[:min(len(text), maxReadable)], "-")
	return strings.TrimPrefix(text+"-", "-") + hex.EncodeToString(hash.Sum(nil)[:hashBytes])
}

// inName replaces characters that a part of a name cannot contain everywhere.
func inName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}
