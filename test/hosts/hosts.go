// Package hosts holds whole machines as archives, for tests of everything that discovers.
package hosts

import (
	"embed"
	"fmt"

	"github.com/assay-project/assay/discovery/host"
)

// Names are the machines there are; each is a directory with an archive and the NodeFeature it yields.
var Names = []string{"arm-board", "cloud-vm", "server"}

//go:embed */host.txtar
var archives embed.FS

// Open returns the machine of that name. Every call returns one of its own, whose Tree may be changed.
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
