package build

import (
	"runtime/debug"
	"testing"
)

func TestRevision(t *testing.T) {
	for name, test := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"NothingStamped": {nil, "unknown"},
		"Clean":          {[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}, "abc"},
		"Dirty":          {[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}, "abc-dirty"},
		"DirtyButNoName": {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := revision(test.settings); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLinkerWins(t *testing.T) {
	defer func(v, c string) { version, commit = v, c }(version, commit)
	version, commit = "v1.2.3", "abc"
	if Version() != "v1.2.3" || Commit() != "abc" {
		t.Errorf("got %s, want the values that the linker set", String())
	}
}
