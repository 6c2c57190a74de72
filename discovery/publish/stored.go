package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Stored is what a worker of this node published.
type Stored struct {
	Content
	// Unread are the errors of feature sets that the NodeFeature names, but that do not exist or cannot be read: Content lacks them.
	Unread []error
}

// Stored reads the NodeFeature of this node with the features of its sets; nil if it does not exist. The Publisher does not use what
// was read.
func (p *Publisher) Stored(ctx context.Context) (*Stored, error) {
	id, err := p.identify(ctx)
	if err != nil {
		return nil, err
	}
	nf, err := p.get(ctx, id.Node, false)
	if hasCode(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get NodeFeature %s/%s: %w", p.opt.Namespace, id.Node, err)
	}
	out := &Stored{Content: Content{Features: complete(nf.spec.Features), Labels: nf.spec.Labels}}
	if err := decode(&out.Features, nf.spec.EncodedInstances); err != nil {
		out.Unread = append(out.Unread, err)
	}
	for _, name := range nf.spec.FeatureSets {
		set, err := p.client.set(ctx, p.opt.Namespace, name)
		switch {
		case err == nil:
			maps.Copy(out.Features.Flags, set.Flags)
			maps.Copy(out.Features.Attributes, set.Attributes)
			maps.Copy(out.Features.Instances, set.Instances)
		case set != nil || refused(err): // the content is not that of the name, or reading it again would not help
			out.Unread = append(out.Unread, err)
		default:
			return nil, fmt.Errorf("get NodeFeatureSet %s/%s: %w", p.opt.Namespace, name, err)
		}
	}
	return out, nil
}

// decode adds instances that were encoded by encode.
func decode(f *nfdv1alpha1.Features, text string) error {
	if text == "" {
		return nil
	}
	var encoded map[string][]map[string]string
	if err := json.Unmarshal([]byte(text), &encoded); err != nil {
		return fmt.Errorf("encoded instances: %w", err)
	}
	for name, list := range encoded {
		set := nfdv1alpha1.InstanceFeatureSet{Elements: make([]nfdv1alpha1.InstanceFeature, len(list))}
		for i, attributes := range list {
			set.Elements[i].Attributes = attributes
		}
		f.Instances[name] = set
	}
	return nil
}
