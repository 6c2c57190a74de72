package lint

import (
	"strings"

	"github.com/assay-project/assay/rules/dictionary"
)

// ownDomains are domains that only Assay publishes. Other publishers use local, custom and fake freely, and may use names such as
// gpu and rdma.
var ownDomains = map[string]bool{
	"cpu": true, "kernel": true, "memory": true, "network": true, "pci": true, "usb": true, "storage": true, "system": true,
}

// proposed are features that are proposed for NFD, so that other publishers may have them.
var proposed = map[string]bool{"network.cliques": true}

// Known reports whether Assay's sources may publish the feature, or NFD is expected to. The name must be in lower case.
func Known(feature string) bool {
	return dictionary.Find(feature) != nil || proposed[feature]
}

func featuresOf(domain string) []string {
	var out []string
	for _, name := range dictionary.Names() {
		if strings.HasPrefix(name, domain+".") {
			out = append(out, name)
		}
	}
	return out
}

// pciBaseClasses are the first two digits of all classes in the PCI code and ID assignment specification.
var pciBaseClasses = map[string]struct{}{
	"00": {}, "01": {}, "02": {}, "03": {}, "04": {}, "05": {}, "06": {}, "07": {}, "08": {}, "09": {}, "0a": {}, "0b": {},
	"0c": {}, "0d": {}, "0e": {}, "0f": {}, "10": {}, "11": {}, "12": {}, "13": {}, "40": {}, "ff": {},
}
