// Package crypto discovers cryptographic coprocessors: Crypto Express (CEX) cards of IBM Z.
package crypto

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "crypto"

// CEXFeature lists the cards.
const CEXFeature = "crypto.cex"

// devicesDir has the cards and queues of the adjunct processor bus, see Documentation/arch/s390/vfio-ap.rst and drivers/s390/crypto.
const devicesDir = "sys/bus/ap/devices"

var (
	cardForm  = regexp.MustCompile(`^card[0-9a-f]{2}$`)
	queueForm = regexp.MustCompile(`^[0-9a-f]{2}\.[0-9a-f]{4}$`)
	// typeForm is the generation of a card, and by its last letter the mode in which it is configured.
	typeForm = regexp.MustCompile(`^CEX[0-9]+[ACP]$`)
)

// modes are the modes of a card by the last letter of its type.
var modes = map[byte]string{'A': "accelerator", 'C': "cca", 'P': "ep11"}

// Source discovers the cards. It is Supplemental: the names of its feature and labels are those that are proposed for Node Feature
// Discovery, and no release of it has them yet.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "crypto".
func (Source) Name() string { return Name }

// Supplemental excludes the source from "all".
func (Source) Supplemental() {}

var _ discovery.Supplemental = Source{}

// Discover reads the cards. Only IBM Z has the bus.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	names, err := discovery.ListDevices(h, devicesDir)
	if err != nil {
		return r, err
	}
	cards := []map[string]string{}
	for _, name := range names {
		if cardForm.MatchString(name) {
			cards = append(cards, read(&r, h, name))
		}
	}
	r.Instances(CEXFeature, cards)
	if len(cards) == 0 {
		return r, nil
	}
	r.Labels["crypto-cex.present"] = "true"
	r.Labels["crypto-cex.count"] = strconv.Itoa(len(cards))
	for _, card := range cards {
		if card["type"] != discovery.Unknown {
			r.Labels["crypto-cex.type-"+card["type"]] = "true"
			r.Labels["crypto-cex.mode-"+card["mode"]] = "true"
		}
	}
	return r, nil
}

// read returns the attributes of a card. Its queues, one for each domain that the machine may use, are directories in that of the card.
func read(r *discovery.Result, h host.Host, name string) map[string]string {
	dir := h.Resolve(devicesDir + "/" + name)
	card := map[string]string{"name": name, "type": discovery.Unknown, "mode": discovery.Unknown}
	kind, err := h.ReadAttribute(dir + "/type")
	switch {
	case err != nil:
		r.Problem(err)
	case !typeForm.MatchString(kind):
		r.Problem(discovery.NotA("type of a Crypto Express card", dir+"/type", kind))
	default:
		card["type"], card["mode"] = kind, modes[kind[len(kind)-1]]
	}
	for _, err := range slices.Concat(
		discovery.ReadNumbers(h, dir, card, "online", "config", "hwtype", "depth"),
		discovery.ReadOptional(h, dir, card, "ap_functions"),
	) {
		r.Problem(err)
	}
	entries, err := h.ReadDir(dir)
	if err != nil {
		r.Problem(err)
		return card
	}
	queues := slices.DeleteFunc(entries, func(e string) bool { return !queueForm.MatchString(e) })
	card["queue_count"], card["queues"] = strconv.Itoa(len(queues)), strings.Join(queues, ",")
	return card
}
