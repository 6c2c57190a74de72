// Package provenance maintains the record of which rule objects gave keys, in memory and in the cluster.
package provenance

import "github.com/assay-project/assay/internal/record"

// The types of package record, which does not use a client.
type (
	// Record lists the keys that rule objects have given to nodes.
	Record = record.Record
	// Entry is the record of one object.
	Entry = record.Entry
	// Owner is a rule object in the state in which it gave a key.
	Owner = record.Owner
	// Gave is a key that an object gives to a node.
	Gave = record.Gave
	// Given lists the keys that the rules gave a Node.
	Given = record.Given
	// Key is the hash of a kind and a key.
	Key = record.Key
	// State is what is known of an object at present.
	State = record.State
)

// The states of objects that are not active, see record.
const (
	Unsettled = record.Unsettled
	Gone      = record.Gone
	Off       = record.Off
	Waiting   = record.Waiting
	Vanished  = record.Vanished
)
