package suggest

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"rack", "rack", 0}, {"rakc", "rack", 1}, {"rak", "rack", 1}, {"racks", "rack", 1}, {"rick", "rack", 1},
		{"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "xyz", 3}, {"a", "abcdefgh", 5},
	} {
		if got := Distance(c.a, c.b, 5); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNearestPrefersTheClosestAndThenTheFirst(t *testing.T) {
	known := []string{"labels", "label", "lable"}
	for name, want := range map[string]string{"labls": "labels", "label": "label", "labe": "label", "zzz": ""} {
		if got := Nearest(name, known, 3); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestNearestFoldIgnoresCase(t *testing.T) {
	known := []string{"matchFeatures", "MatchAny"}
	for name, want := range map[string]string{"MATCHFEATURE": "matchFeatures", "matchany": "MatchAny", "labels": ""} {
		if got := NearestFold(name, known, 3); got != want {
			t.Errorf("NearestFold(%q) = %q, want %q", name, got, want)
		}
	}
}
