// Package hold formats and reads the Events by which the controller reports that it leaves keys of a Node as they are for a while. The
// command line reads them to explain a Node that differs from what rules give. It does not use a client.
package hold

import (
	"fmt"
	"strings"
	"time"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

// The reasons of the Events.
const (
	// Removal is the reason while the removal budget or removalGracePeriod holds removals.
	Removal = "RemovalHeld"
	// Devices is the reason while the last devices of DRA drivers count whose pools are incomplete or gone.
	Devices = "DevicesHeld"
	// Flapping is the reason while a key is left alone that changes too often.
	Flapping = "KeyFlapping"
	// Contested is the reason while a key is left alone that another client keeps changing back.
	Contested = "KeyContested"
	// AnotherMaster is the reason when another program removes keys that rules give, together with their record.
	AnotherMaster = "AnotherMaster"
	// DevicesOver is the reason while pools of devices are left out because a node has too many devices.
	DevicesOver = "DevicesOverLimit"
	// Refused is the reason while a key is left out that the API server rejects.
	Refused = "KeyRefused"
	// Lost is the reason after keys were removed because the features of the node changed.
	Lost = "FeaturesLost"
)

// leads are the first words of the messages.
var leads = map[string]string{
	Removal: "Removal held", Devices: "Devices held", Flapping: "Left as it is", Contested: "Not corrected", Refused: "Not written",
}

// MaxKeys is the maximum number of keys that an Event names. A Node can lose a hundred keys at once, and the message of an Event has at most
// 1024 bytes.
const MaxKeys = 5

// untilMark precedes the time in a message.
const untilMark = " until "

// Message returns the message of an Event. The keys come from Key; there are none if the hold is about all keys of the Node.
func Message(reason string, until time.Time, why string, keys []string) string {
	text := fmt.Sprintf("%s%s%s: %s", leads[reason], untilMark, until.UTC().Truncate(time.Second).Format(time.RFC3339), why)
	if len(keys) > 0 {
		text += ": " + Some(keys)
	}
	return text
}

// Some joins at most MaxKeys keys and says how many others there are.
func Some(list []string) string {
	return clip.Join(list, ", ", MaxKeys)
}

// Key returns the kind and name of a key as messages name it.
func Key(kind keys.Kind, key string) string { return string(kind) + " " + key }

// Read returns the time until which a hold lasts, and why, by its message.
func Read(message string) (until time.Time, why string, ok bool) {
	_, rest, ok := strings.Cut(message, untilMark)
	if !ok {
		return time.Time{}, "", false
	}
	at, why, _ := strings.Cut(rest, ": ")
	until, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return time.Time{}, "", false
	}
	end := len(why)
	for _, kind := range keys.NodeKinds {
		if i := strings.LastIndex(why, ": "+string(kind)+" "); i >= 0 {
			end = min(end, i)
		}
	}
	return until, why[:end], true
}

// Names reports whether the message of an Event names a key.
func Names(message string, kind keys.Kind, key string) bool {
	const end = ` ,;=")`
	for name := Key(kind, key); ; {
		i := strings.Index(message, name)
		if i < 0 {
			return false
		}
		message = message[i+len(name):]
		if message == "" || strings.ContainsRune(end, rune(message[0])) || strings.HasPrefix(message, ": ") {
			return true
		}
	}
}

// More reports whether a message leaves keys out.
func More(message string) bool { return strings.HasSuffix(message, " more") }
