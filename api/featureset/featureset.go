// Package featureset computes the names of NodeFeatureSets from their content.
//
// A NodeFeatureSet is a feature that many nodes have in common, such as the configuration of a kernel. Its name contains a digest
// of the feature, so that equal features have equal names on all nodes, and a reader can verify the content of a set.
package featureset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// Version is the format version of names and digests that this program reads and writes.
	Version = "v1"
	// MaxBytes is the maximum size of the features of a set: that of the features of a NodeFeature, which has to hold them if the set
	// cannot be created.
	MaxBytes = 256 << 10
	// MaxElements is the maximum number of elements of the feature of a set, and of attributes of an instance: the shortest one, "":"",
	// takes 6 of MaxBytes.
	MaxElements = MaxBytes / 6
	// digestLength is the number of hexadecimal digits of the SHA-256 in a name: 160 bits, as in Git.
	digestLength = 40
	// maxPrefix is the maximum length of the readable prefix of a name. The names of features are shorter.
	maxPrefix = 100
)

// Announcement returns the annotations of the ConfigMap in which a controller announces that it reads feature sets of this version, and
// encoded instances.
func Announcement() map[string]string {
	return map[string]string{
		assayv1alpha1.FeatureSetFormatAnnotation: Version,
		assayv1alpha1.EncodedInstancesAnnotation: assayv1alpha1.EncodedInstancesEnabled,
	}
}

// Name returns the name of the set with these features, which must be exactly one, in valid UTF-8. It does not depend on the
// encoding: absent and empty maps, and the order of keys, make no difference.
func Name(f *nfdv1alpha1.Features) (string, error) {
	feature, err := Feature(f)
	if err != nil {
		return "", err
	}
	var c canonical
	c.features(f)
	if !utf8.Valid(c) {
		return "", fmt.Errorf("feature %q: the value is not valid UTF-8", feature)
	}
	sum := sha256.Sum256(c)
	return prefix(feature) + "-" + Version + "-" + hex.EncodeToString(sum[:])[:digestLength], nil
}

// Feature returns the name of the only feature.
func Feature(f *nfdv1alpha1.Features) (string, error) {
	if n := len(f.Flags) + len(f.Attributes) + len(f.Instances); n != 1 {
		return "", fmt.Errorf("a feature set contains exactly one feature, not %d", n)
	}
	for name := range f.Flags {
		return name, nil
	}
	for name := range f.Attributes {
		return name, nil
	}
	for name := range f.Instances {
		return name, nil
	}
	return "", errors.New("a feature set contains exactly one feature")
}

// ErrVersion reports that a name has an unknown format version. A newer program wrote the set; do not change it.
var ErrVersion = errors.New("unknown format version")

// Verify returns an error if the name of a set does not match its features. The error wraps ErrVersion if the format version is
// unknown.
func Verify(name string, f *nfdv1alpha1.Features) error {
	if err := Known(name); err != nil {
		return err
	}
	want, err := Name(f)
	if err != nil {
		return fmt.Errorf("feature set %q: %w", name, err)
	}
	if name != want {
		return fmt.Errorf("feature set %q: its features belong to the name %q", name, want)
	}
	return nil
}

// Known returns an error that wraps ErrVersion if the name does not have a known format version.
func Known(name string) error {
	rest, digest, ok := cutLast(name)
	if ok && len(digest) == digestLength && isHex(digest) {
		if before, version, ok := cutLast(rest); ok && before != "" && version == Version {
			return nil
		}
	}
	return fmt.Errorf("feature set %q: %w: this program reads names that end in -%s- and %d hexadecimal digits", name, ErrVersion, Version, digestLength)
}

// cutLast splits a name at its last dash.
func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

// prefix converts the name of a feature to the start of a DNS subdomain. Two features may have the same prefix: the digest
// distinguishes them.
func prefix(feature string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, feature)
	out = strings.TrimLeft(out[:min(len(out), maxPrefix)], "-")
	if out == "" {
		return "feature"
	}
	return out
}
