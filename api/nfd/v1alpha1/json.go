package v1alpha1

import (
	"bytes"
	"encoding/json"
)

// JSON is a value whose type the API server does not check, because it depends on another field: the arguments of an operator
// depend on the operator. Compile checks it. The zero value is absent.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XPreserveUnknownFields
type JSON struct {
	// Raw is the value as written. It is valid JSON.
	Raw []byte `json:"-"`
}

// MarshalJSON returns the value as written. An absent value is null.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j.Raw) == 0 {
		return []byte("null"), nil
	}
	return j.Raw, nil
}

// UnmarshalJSON stores a copy of the value without parsing it. null is absent.
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

// Decode parses the value as encoding/json does, with numbers as json.Number so that large integers keep all digits. An absent
// value is nil.
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
