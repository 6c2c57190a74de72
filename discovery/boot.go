package discovery

import (
	"errors"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// bootID returns the ID that the kernel generates when it boots, see random(4), or an empty string if the host has none. The kubelet reports
// the same one on the Node, so that the controller can distinguish features of this boot from those of an earlier one.
func bootID(h host.Host) (string, error) {
	id, err := h.ReadAttribute(host.BootID)
	switch {
	case errors.Is(err, host.ErrNotMounted): // a Runner reports that once
		return "", nil
	case err != nil:
		return "", host.Present(err)
	case strings.Trim(strings.ToLower(id), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || id == "":
		return "", NotA("boot ID", host.BootID, id)
	}
	return id, nil
}

// checkBoot reads the ID of the boot, which is the same as long as this process runs, unless it is known. It reports whether it became known.
func (r *Runner) checkBoot(report *Report) bool {
	if r.boot != "" {
		return false
	}
	id, err := bootID(r.host)
	if err != nil {
		report.Problems = append(report.Problems, SourceError{Err: err})
	}
	r.boot = id
	return id != ""
}

// nameBoot adds the feature with the ID of the boot, if it is known. It does not depend on the selected sources: it says of which boot all
// other features are.
func (r *Runner) nameBoot(features *nfdv1alpha1.Features) {
	if r.boot != "" {
		features.Attributes[nfdv1alpha1.BootFeature] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{nfdv1alpha1.BootElement: r.boot}}
	}
}
