package publish

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// tree is a JSON object under construction. A nil value means deletion (RFC 7386).
type tree = map[string]any

func (p *Publisher) patch(have, want *object) ([]byte, error) { return mergePatch(have, want) }

// mergePatch returns the smallest JSON merge patch from have to want, or nil if they are equal. It contains the resource version of
// have, so that the API server rejects it after a concurrent write.
func mergePatch(have, want *object) ([]byte, error) {
	meta, spec := diffMetadata(&have.metadata, &want.metadata), tree{}
	put(spec, "features", diffFeatures(&have.spec.Features, &want.spec.Features))
	put(spec, "labels", diffMap(have.spec.Labels, want.spec.Labels, diffValue[string]))
	if !slices.Equal(have.spec.FeatureSets, want.spec.FeatureSets) {
		spec["featureSets"] = want.spec.FeatureSets // atomic; nil deletes it
	}
	if have.spec.EncodedInstances != want.spec.EncodedInstances {
		spec["encodedInstances"] = nil // deletes it
		if want.spec.EncodedInstances != "" {
			spec["encodedInstances"] = want.spec.EncodedInstances
		}
	}
	if len(meta) == 0 && len(spec) == 0 {
		return nil, nil
	}
	if len(want.spec.FeatureSets) > 0 {
		// Always, because strict validation only finds out from the field that the API server would drop it.
		spec["featureSets"] = want.spec.FeatureSets
	}
	meta["resourceVersion"] = have.resourceVersion
	patch := tree{"metadata": meta}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return body, nil
}

// diffMetadata returns the difference of the metadata.
func diffMetadata(have, want *metadata) tree {
	meta := tree{}
	put(meta, "labels", diffOwned(have.labels, want.labels))
	put(meta, "annotations", diffOwned(have.annotations, want.annotations))
	if !slices.EqualFunc(have.owners, want.owners, sameOwner) {
		meta["ownerReferences"] = want.owners // atomic in a merge patch; nil deletes it
	}
	return meta
}

func diffFeatures(have, want *nfdv1alpha1.Features) tree {
	out := tree{}
	put(out, "flags", diffMap(have.Flags, want.Flags, func(a, b nfdv1alpha1.FlagFeatureSet) any {
		return elements(diffMap(a.Elements, b.Elements, diffValue[nfdv1alpha1.Nil]))
	}))
	put(out, "attributes", diffMap(have.Attributes, want.Attributes, func(a, b nfdv1alpha1.AttributeFeatureSet) any {
		return elements(diffMap(a.Elements, b.Elements, diffValue[string]))
	}))
	put(out, "instances", diffMap(have.Instances, want.Instances, func(a, b nfdv1alpha1.InstanceFeatureSet) any {
		if slices.EqualFunc(a.Elements, b.Elements, sameInstance) {
			return nil
		}
		return b // lists have no keys to merge by
	}))
	return out
}

// diffMap returns the difference from have to want: changed and added keys with the difference of their values, removed ones with
// an explicit null.
func diffMap[V any](have, want map[string]V, diff func(have, want V) any) tree {
	out := tree{}
	for k, w := range want {
		if h, ok := have[k]; !ok {
			out[k] = w
		} else if d := diff(h, w); d != nil {
			out[k] = d
		}
	}
	for k := range have {
		if _, ok := want[k]; !ok {
			out[k] = nil
		}
	}
	return out
}

// diffOwned is diffMap for maps with keys of other writers: it only compares the keys in want, and a key with an empty value must
// be absent.
func diffOwned(have, want map[string]string) tree {
	out := tree{}
	for k, w := range want {
		h, ok := have[k]
		switch {
		case w == "" && ok:
			out[k] = nil
		case w != "" && h != w:
			out[k] = w
		}
	}
	return out
}

func diffValue[V comparable](have, want V) any {
	if have == want {
		return nil
	}
	return want
}

func elements(diff tree) any {
	if len(diff) == 0 {
		return nil
	}
	return tree{"elements": diff}
}

// put sets a member unless the value is empty.
func put(t tree, key string, member tree) {
	if len(member) > 0 {
		t[key] = member
	}
}

func sameInstance(a, b nfdv1alpha1.InstanceFeature) bool {
	return maps.Equal(a.Attributes, b.Attributes)
}

// sameOwner compares the fields that the worker writes, including the two optional booleans, which NFD's owners do not have.
func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		isSet(a.Controller) == isSet(b.Controller) && isSet(a.BlockOwnerDeletion) == isSet(b.BlockOwnerDeletion)
}

func isSet(b *bool) bool { return b != nil && *b }
