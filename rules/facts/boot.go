package facts

// BootFeature is the feature by which the worker reports which boot of the node it has examined, and BootElement its element.
const (
	BootFeature = "system.boot"
	BootElement = "id"
)

// Boot returns the boot that a worker has examined; "": the facts do not say, since they are not of a worker of Assay, or it does not examine
// the system.
func (f *Facts) Boot() string {
	boot := f.Feature(BootFeature)
	if boot == nil || boot.Attributes == nil {
		return ""
	}
	id, _ := boot.Attributes.Get(BootElement)
	return id
}
