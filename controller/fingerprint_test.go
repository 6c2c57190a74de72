package controller

import (
	"regexp"
	"testing"
	"time"

	"github.com/assay-project/assay/settings"
)

// TestAnUpgradeChangesNoFingerprint: with another one, the record of each Node says after an upgrade that settings have changed, and is
// written.
func TestAnUpgradeChangesNoFingerprint(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*settings.Settings)
		want   string
	}{
		"Defaults": {func(*settings.Settings) {}, "c4252ce3bb6b81f6"},
		"Primary": {func(s *settings.Settings) {
			s.Restrictions.DisableAnnotations, s.DRADrivers, s.EnableTaints = true, []string{"a"}, true
			s.LabelWhiteList, s.MaterializedRequests.Total, s.RemovalGracePeriod = regexp.MustCompile("a.b"), 0, time.Hour
		}, "8eccfb5306973c8c"},
		"Instance": {func(s *settings.Settings) {
			s.Restrictions.DisableAnnotations, s.DRADrivers, s.LabelWhiteList = true, []string{"a"}, regexp.MustCompile("a.b")
			s.Restrictions.DisableLabels, s.Restrictions.DisableExtendedResources, s.Instance = true, true, "blue"
		}, "eb242d64e0cec36f"},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings.Default()
			test.change(s)
			if got := (Config{Settings: s, Namespace: "ns"}).fingerprint(); got != test.want {
				t.Errorf("got the fingerprint %s, want %s", got, test.want)
			}
		})
	}
}
