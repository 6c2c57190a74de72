// Package provenance records which rule objects gave keys, and determines whether rules or facts caused a removal.
package provenance

import (
	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/rules/keys"
)

type (
	// Record lists the keys that rule objects have given to nodes.
	Record = record.Record
	// Entry is the record of one object.
	Entry = record.Entry
	// Giver is a rule object in the state in which it gave a key.
	Giver = record.Giver
	// Key is the hash of a kind and a key.
	Key = record.Key
	// State is what is known of an object at present.
	State = record.State
	// Object is an object of rules at present.
	Object = record.Object
	// Case is everything that the cause of a removal depends on.
	Case = record.Case
	// Cause says why a key is removed or its value changes.
	Cause = record.Cause
)

// The states of objects, see record.
const (
	Unsettled = record.Unsettled
	Gone      = record.Gone
	Off       = record.Off
	InForce   = record.InForce
)

// The causes, see record.
const (
	Unknown = record.Unknown
	Facts   = record.Facts
	Rules   = record.Rules
)

// KeyOf returns the hash of a key.
func KeyOf(kind keys.Kind, key string) Key { return record.KeyOf(kind, key) }

// Why returns the cause of a removal.
func Why(c Case) Cause { return record.Why(c) }
