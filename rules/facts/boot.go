package facts

import nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"

// Boot returns the boot that a worker has examined; "": the facts do not say, since they are not of a worker of Assay, or it cannot read it.
func (f *Facts) Boot() string {
	boot := f.Feature(nfdv1alpha1.BootFeature)
	if boot == nil || boot.Attributes == nil {
		return ""
	}
	id, _ := boot.Attributes.Get(nfdv1alpha1.BootElement)
	return id
}
