package v1alpha1

import (
	"bytes"
	"encoding/json"
)

// JSON is a value whose shape the API server does not check, because it depends on a neighboring field (the arguments of
// an operator depend on the operator). Compile checks it. The zero value is absent.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XPreserveUnknownFields
type JSON struct {
	// Raw is the value as it was written, valid JSON.
	Raw []byte `json:"-"`
}

// MarshalJSON returns the value as it was written; an absent value is null.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j.Raw) == 0 {
		return []byte("null"), nil
	}
	return j.Raw, nil
}

// UnmarshalJSON keeps a copy of the value, unparsed; null leaves it absent.
func (j *JSON) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		j.Raw = nil
		return nil
	}
	j.Raw = append([]byte(nil), data...)
	return nil
}

// IsZero reports whether the value is absent.
func (j JSON) IsZero() bool { return len(j.Raw) == 0 }

// Decode parses the value the way encoding/json does into an any, with numbers kept as json.Number so that no digit of a
// large integer is lost. An absent value is nil.
func (j JSON) Decode() (any, error) {
	if j.IsZero() {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(j.Raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
