package topology

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// PodName identifies a pod.
type PodName struct{ Namespace, Name string }

// Methods of fingerprints: of which pods they are.
const (
	// MethodAll is the fingerprint of all pods.
	MethodAll = "all"
	// MethodExclusive is the fingerprint of the pods that hold CPUs, memory or devices exclusively.
	MethodExclusive = "with-exclusive-resources"
)

// Fingerprint returns the digest of a set of pods that a scheduler compares with that of the pods that it knows on the node
// (github.com/k8stopologyawareschedwg/podfingerprint, version 1). The order of the pods has no effect.
func Fingerprint(pods []PodName) string {
	hashes := make([]uint64, len(pods))
	for i, p := range pods {
		d := xxhash.NewWithSeed(xxhash.Sum64String(p.Namespace))
		_, _ = d.WriteString(p.Name) // never fails
		hashes[i] = d.Sum64()
	}
	slices.Sort(hashes)
	sum := xxhash.New()
	for _, h := range hashes {
		_, _ = sum.Write(binary.LittleEndian.AppendUint64(nil, h))
	}
	return fmt.Sprintf("pfp0v001%016x", sum.Sum64())
}
