// Package record holds which rule objects gave which keys, and encodes it for a ConfigMap. It does not use a client, so that the
// command line can read it.
package record

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-project/assay/rules/keys"
)

// DataKey is the key of the record in the data of the ConfigMap. It is not a valid object name, so it never collides with the keys
// of stored results.
const DataKey = "_provenance"

// Requested is the ID for labels that NodeFeatures request without a rule.
const Requested = "nodefeatures:spec.labels"

// Owner is a rule object in the state in which it gave a key.
type Owner struct {
	ID, Name string
	// Print is the fingerprint that it had; empty: nodes could have keys from several versions.
	Print string
}

const (
	// MaxKeys is the maximum number of keys recorded per object. A rule has at most 256 literal names; the limit is for templates,
	// which can produce different keys on every node.
	MaxKeys = 2048
	// MaxRecord is the maximum size of the record in bytes. It shares a ConfigMap, which holds 1 MiB, with assembly.Kept.
	MaxRecord = 384 << 10
)

// Key is the hash of a kind and a key.
type Key uint32

// KeyOf returns the hash of a key.
func KeyOf(kind keys.Kind, key string) Key {
	const offset, prime = 2166136261, 16777619 // FNV-1a; hash/fnv would allocate, for each label of each node
	sum := uint32(offset)
	for _, text := range [...]string{string(kind), " ", key} {
		for i := range len(text) {
			sum = (sum ^ uint32(text[i])) * prime
		}
	}
	return Key(sum)
}

// Record lists the keys that rule objects have given to nodes. The zero Record belongs to a cluster about which nothing is known.
type Record struct {
	// Whole is set if the record contains every object that ever gave a key.
	Whole bool
	// Objects by ID.
	Objects map[string]*Entry
	// Definitions are the UIDs of the definitions of the kinds of the objects, by name.
	Definitions map[string]string
}

// Entry is the record of one object.
type Entry struct {
	Name string
	// Rolled is the fingerprint that has reached all nodes; empty: nodes could have keys from several versions.
	Rolled string
	// Keys that it has given to any node, at most MaxKeys.
	Keys map[Key]bool
}

// Owners returns the objects that could have given a key, sorted by ID. A nil Record belongs to a program that could not read it.
func (r *Record) Owners(key Key) (out []Owner) {
	if r == nil {
		return nil
	}
	for id, e := range r.Objects {
		if e.Keys[key] {
			out = append(out, Owner{ID: id, Name: e.Name, Print: e.Rolled})
		}
	}
	slices.SortFunc(out, func(a, b Owner) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Rolled returns the fingerprint of an object that has reached all nodes; empty: there is none, or the object is not recorded.
func (r *Record) Rolled(id string) string {
	if r == nil || r.Objects[id] == nil {
		return ""
	}
	return r.Objects[id].Rolled
}

// Covers reports whether the record already contains that an object could have given a key.
func (r *Record) Covers(g Owner, key Key) bool {
	e := r.Objects[g.ID]
	return e != nil && (e.Rolled == "" || e.Rolled == g.Print) && (e.Keys[key] || len(e.Keys) >= MaxKeys)
}

// Add records that an object in its current state gives a key to a node.
func (r *Record) Add(g Owner, key Key) {
	e := r.Objects[g.ID]
	if e == nil {
		e = &Entry{Keys: map[Key]bool{}}
		if !r.Whole {
			e.Rolled = g.Print // other nodes could have more of its keys that are not recorded; that does not prove that it has changed
		}
		r.Put(g.ID, e)
	}
	e.Name = g.Name
	if e.Rolled != g.Print {
		e.Rolled = ""
	}
	e.Add(key)
}

// Put sets the entry of an object.
func (r *Record) Put(id string, e *Entry) {
	if r.Objects == nil {
		r.Objects = map[string]*Entry{}
	}
	r.Objects[id] = e
}

// Add records a key, up to MaxKeys.
func (e *Entry) Add(key Key) {
	if len(e.Keys) < MaxKeys {
		e.Keys[key] = true
	}
}

// Clone returns a deep copy.
func (r *Record) Clone() *Record {
	out := &Record{Whole: r.Whole, Definitions: maps.Clone(r.Definitions), Objects: make(map[string]*Entry, len(r.Objects))}
	for id, e := range r.Objects {
		out.Objects[id] = &Entry{Name: e.Name, Rolled: e.Rolled, Keys: maps.Clone(e.Keys)}
	}
	return out
}

// wire is the encoding of a record in a ConfigMap.
type wire struct {
	Whole       bool                 `json:"whole"`
	Definitions map[string]string    `json:"definitions,omitempty"`
	Objects     map[string]wireEntry `json:"objects"`
}

type wireEntry struct {
	Name   string `json:"name"`
	Rolled string `json:"rolled,omitempty"`
	Keys   string `json:"keys,omitempty"` // base64 of 4 bytes each, sorted
}

// Encode returns the record as JSON of at most MaxRecord bytes; equal records have equal JSON. If the JSON would be larger, the
// objects with the most keys are dropped, and Whole is unset.
func (r *Record) Encode() string {
	w := wire{Whole: r.Whole, Definitions: r.Definitions, Objects: map[string]wireEntry{}}
	total := 0
	for name, uid := range r.Definitions {
		total += len(`,"definitions":{"":""}`) + len(name) + len(uid)
	}
	bySize := slices.SortedFunc(maps.Keys(r.Objects), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.Objects[a].Keys), len(r.Objects[b].Keys)), cmp.Compare(a, b))
	})
	for _, id := range bySize {
		e := r.Objects[id]
		keys := make([]byte, 0, 4*len(e.Keys))
		for _, key := range slices.Sorted(maps.Keys(e.Keys)) {
			keys = binary.BigEndian.AppendUint32(keys, uint32(key))
		}
		entry := wireEntry{e.Name, e.Rolled, base64.StdEncoding.EncodeToString(keys)}
		total += len(id) + len(e.Name) + len(e.Rolled) + len(entry.Keys) + len(`"":{"name":"","rolled":"","keys":""},`)
		if total > MaxRecord-len(`{"whole":false,"objects":{}}`) {
			w.Whole = false
			break
		}
		w.Objects[id] = entry
	}
	data, _ := json.Marshal(w) // strings and booleans always marshal
	return string(data)
}

// Decode is the inverse of Encode. On an error it returns no record.
func Decode(text string) (*Record, error) {
	if text == "" {
		return &Record{}, nil
	}
	var w wire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	out := &Record{Whole: w.Whole, Definitions: w.Definitions}
	for id, in := range w.Objects {
		keys, err := base64.StdEncoding.DecodeString(in.Keys)
		if err != nil || len(keys)%4 != 0 || len(keys) > 4*MaxKeys {
			return nil, fmt.Errorf("invalid keys of object %q", in.Name)
		}
		e := &Entry{Name: in.Name, Rolled: in.Rolled, Keys: make(map[Key]bool, len(keys)/4)}
		for ; len(keys) > 0; keys = keys[4:] {
			e.Keys[Key(binary.BigEndian.Uint32(keys))] = true
		}
		out.Put(id, e)
	}
	return out, nil
}

// Merge adds the entries of another record. Entries with different fingerprints come from several generations.
func (r *Record) Merge(other *Record) {
	r.Whole = r.Whole && other.Whole
	for id, theirs := range other.Objects {
		e := r.Objects[id]
		if e == nil {
			r.Put(id, &Entry{Name: theirs.Name, Rolled: theirs.Rolled, Keys: maps.Clone(theirs.Keys)})
			continue
		}
		if e.Rolled != theirs.Rolled {
			e.Rolled = ""
		}
		for key := range theirs.Keys {
			e.Add(key)
		}
	}
}
