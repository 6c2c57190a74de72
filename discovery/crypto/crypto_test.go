package crypto_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/crypto"
	"github.com/assay-project/assay/discovery/host"
)

const z16 = `-- host.json --
{}
-- sys/bus/ap/devices/ --
card00 -> ../../../devices/ap/card00
card01 -> ../../../devices/ap/card01
00.0005 -> ../../../devices/ap/card00/00.0005
00.0016 -> ../../../devices/ap/card00/00.0016
01.0005 -> ../../../devices/ap/card01/01.0005
-- sys/devices/ap/card00/ --
type: CEX8C
online: 1
config: 1
hwtype: 14
depth: 8
ap_functions: 0x92000000
00.0005/online: 1
00.0016/online: 1
-- sys/devices/ap/card01/ --
type: CEX8P
online: 0
config: 1
hwtype: 14
depth: 8
ap_functions: 0x26000000
01.0005/online: 0
`

func TestCryptoExpressCards(t *testing.T) {
	for name, tt := range map[string]struct {
		archive  string
		cards    []map[string]string
		labels   map[string]string
		problems int
	}{
		"two cards": {
			archive: z16,
			cards: []map[string]string{
				{"name": "card00", "type": "CEX8C", "mode": "cca", "online": "1", "config": "1", "hwtype": "14", "depth": "8", "ap_functions": "0x92000000",
					"queue_count": "2", "queues": "00.0005,00.0016"},
				{"name": "card01", "type": "CEX8P", "mode": "ep11", "online": "0", "config": "1", "hwtype": "14", "depth": "8", "ap_functions": "0x26000000",
					"queue_count": "1", "queues": "01.0005"},
			},
			labels: map[string]string{
				"crypto-cex.present": "true", "crypto-cex.count": "2", "crypto-cex.type-CEX8C": "true", "crypto-cex.type-CEX8P": "true",
				"crypto-cex.mode-cca": "true", "crypto-cex.mode-ep11": "true",
			},
		},
		"another machine":     {archive: "-- host.json --\n{}\n", cards: []map[string]string{}, labels: map[string]string{}},
		"a bus without cards": {archive: "-- host.json --\n{}\n-- sys/bus/ap/devices/ --\n", cards: []map[string]string{}, labels: map[string]string{}},
		"a type that is not known": {
			archive:  "-- host.json --\n{}\n-- sys/bus/ap/devices/card0a/ --\ntype: CEX99X\nonline: 1\n",
			cards:    []map[string]string{{"name": "card0a", "type": "unknown", "mode": "unknown", "online": "1", "queue_count": "0", "queues": ""}},
			labels:   map[string]string{"crypto-cex.present": "true", "crypto-cex.count": "1"},
			problems: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := crypto.New().Discover(t.Context(), h)
			if err != nil || len(r.Problems) != tt.problems {
				t.Errorf("error %v, problems %v", err, r.Problems)
			}
			cards := []map[string]string{}
			for _, card := range r.Features.Instances[crypto.CEXFeature].Elements {
				cards = append(cards, card.Attributes)
			}
			if diff := cmp.Diff(tt.cards, cards); diff != "" {
				t.Errorf("cards (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.labels, r.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOffUntilItIsNamed: the names are proposals.
func TestOffUntilItIsNamed(t *testing.T) {
	sources := []discovery.Source{crypto.New()}
	for list, want := range map[string]bool{"all": false, "crypto": true} {
		if choice, _ := discovery.Choose([]string{list}, sources); choice.Has(crypto.New()) != want {
			t.Errorf("%s selects the source: %t, want %t", list, !want, want)
		}
	}
}
