package printer

// Line returns key=value, or the key alone without a value.
func Line(key, value string) string {
	if value == "" {
		return key
	}
	return key + "=" + value
}
