package printer

// Dash returns a dash for an empty cell.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
