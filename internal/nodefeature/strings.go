package nodefeature

import "sync"

// maxStringBytes is the maximum total size of the strings that are kept for sharing. The rules of a cluster produce a few hundred keys
// and values with tens of kB; the rest is for strings that only one object has, which cannot be distinguished in advance.
const maxStringBytes = 2 << 20

// stringOverhead is the approximate size in bytes of an entry in a map of strings.
const stringOverhead = 48

// sharedStrings deduplicates the keys and values of metadata: thousands of Nodes have the same hundred labels, whose strings have more
// than 10 kB.
var sharedStrings = &stringTable{known: map[string]string{}}

// stringTable is cleared when it is full; the next objects fill it again.
type stringTable struct {
	mu    sync.Mutex
	known map[string]string
	bytes int
}

// ShareStrings replaces the keys and values of a map by equal strings that other maps hold. The map must not be in use yet.
func ShareStrings(m map[string]string) {
	if len(m) == 0 {
		return
	}
	sharedStrings.mu.Lock()
	defer sharedStrings.mu.Unlock()
	for k, v := range m {
		m[sharedStrings.share(k)] = sharedStrings.share(v) // assigning to an existing key also replaces the string of the key
	}
}

// ShareList is ShareStrings for a list.
func ShareList(list []string) {
	if len(list) == 0 {
		return
	}
	sharedStrings.mu.Lock()
	defer sharedStrings.mu.Unlock()
	for i, s := range list {
		list[i] = sharedStrings.share(s)
	}
}

func (t *stringTable) share(s string) string {
	if known, ok := t.known[s]; ok {
		return known
	}
	if t.bytes += len(s) + stringOverhead; t.bytes > maxStringBytes {
		clear(t.known)
		t.bytes = len(s) + stringOverhead
	}
	t.known[s] = s
	return s
}
