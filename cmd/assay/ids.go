package main

import (
	"sync"

	"github.com/assay-project/assay/internal/ids"
)

// onceNames is the names of PCI and USB ids, read when first asked for.
type onceNames struct {
	once  sync.Once
	names *ids.Names
}

func (o *onceNames) get() *ids.Names {
	o.once.Do(func() { o.names = loadIDs() })
	return o.names
}
