// Package hosts holds whole machines as archives, for tests of discovery.
package hosts

import (
	"embed"
	"fmt"

	"github.com/assay-project/assay/discovery/host"
)

// Names lists the machines; each is a directory with an archive and the resulting NodeFeature.
var Names = []string{
	"a64fx", "arm-board", "armv7", "cloud-vm", "epyc", "loongarch", "power10", "power8", "power9", "riscv", "server", "vmware", "zlpar",
	"zvm",
}

//go:embed */host.txtar
var archives embed.FS

// Open returns the machine of that name. Every call returns a new one, whose Tree can be modified.
func Open(name string) (host.Host, error) {
	data, err := archives.ReadFile(name + "/host.txtar")
	if err != nil {
		return host.Host{}, err
	}
	h, err := host.FromArchive(data)
	if err != nil {
		return host.Host{}, fmt.Errorf("host %s: %w", name, err)
	}
	return h, nil
}
