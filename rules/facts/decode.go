package facts

import (
	"encoding/json"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Decode makes Facts of the JSON of spec.features.
func Decode(raw []byte, in *Interner) (*Facts, error) {
	var f nfdv1alpha1.Features
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	return New(&f, in), nil
}
