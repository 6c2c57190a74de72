package host

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Tree is a file system in memory, which FromArchive returns. It must not be modified once it is in use; then it is safe for
// concurrent use.
type Tree struct {
	nodes map[string]*node // by name without links
}

// node is a file, a directory or a symbolic link.
type node struct {
	mode    fs.FileMode
	data    []byte
	zeros   int64 // the number of zero bytes, instead of data
	target  string
	err     error // the error of opening it
	entries []string
}

// NewTree returns an empty tree.
func NewTree() *Tree {
	return &Tree{nodes: map[string]*node{".": {mode: fs.ModeDir | 0o555}}}
}

// AddFile adds a file, and its parent directories.
func (t *Tree) AddFile(name string, data []byte) { t.add(name, &node{mode: 0o444, data: data}) }

// AddLink adds a symbolic link.
func (t *Tree) AddLink(name, target string) {
	t.add(name, &node{mode: fs.ModeSymlink | 0o777, target: target})
}

// AddDir adds a directory, and its parent directories.
func (t *Tree) AddDir(name string) { t.add(name, &node{mode: fs.ModeDir | 0o555}) }

// AddBroken adds a file that cannot be opened.
func (t *Tree) AddBroken(name string, err error) { t.add(name, &node{mode: 0o444, err: err}) }

// AddZeros adds a file with the given number of zero bytes, which use no memory.
func (t *Tree) AddZeros(name string, size int64) { t.add(name, &node{mode: 0o444, zeros: size}) }

// AddPipe adds a named pipe.
func (t *Tree) AddPipe(name string) { t.add(name, &node{mode: fs.ModeNamedPipe | 0o444}) }

// Remove removes a name and everything below it. It does nothing if the name does not exist.
func (t *Tree) Remove(name string) {
	n, ok := t.nodes[name]
	if !ok {
		return
	}
	for _, e := range slices.Clone(n.entries) {
		t.Remove(name + "/" + e)
	}
	delete(t.nodes, name)
	up := t.nodes[path.Dir(name)]
	up.entries = slices.DeleteFunc(up.entries, func(e string) bool { return e == path.Base(name) })
}

func (t *Tree) add(name string, n *node) {
	old, ok := t.nodes[name]
	if ok {
		n.entries = old.entries
		t.nodes[name] = n
		return
	}
	t.nodes[name] = n
	for name != "." {
		dir := path.Dir(name)
		up, ok := t.nodes[dir]
		if !ok {
			up = &node{mode: fs.ModeDir | 0o555}
			t.nodes[dir] = up
		}
		up.entries = append(up.entries, path.Base(name))
		if ok {
			return
		}
		name = dir
	}
}

// lookup follows links and returns the node for a name.
func (t *Tree) lookup(name string) (string, *node, error) {
	// Usually the path contains no link, and the name itself is the key.
	if n, ok := t.nodes[name]; ok && n.mode&fs.ModeSymlink == 0 {
		return name, n, nil
	}
	name, err := resolve(name, t.readLink)
	if err != nil {
		return "", nil, err
	}
	n, ok := t.nodes[name]
	if !ok {
		return "", nil, fs.ErrNotExist
	}
	return name, n, nil
}

func (t *Tree) readLink(name string) (string, error) {
	n, ok := t.nodes[name]
	switch {
	case !ok:
		return "", fs.ErrNotExist
	case n.mode&fs.ModeSymlink == 0:
		return "", errNotLink
	}
	return n.target, nil
}

// Open opens a file; it follows links.
func (t *Tree) Open(name string) (fs.File, error) {
	name, n, err := t.lookup(name)
	if err == nil {
		err = n.err
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := &treeFile{info: treeInfo{name: path.Base(name), node: n}}
	if n.zeros > 0 {
		f.Reader = io.LimitReader(zeros{}, n.zeros)
	} else {
		f.Reader = bytes.NewReader(n.data)
	}
	return f, nil
}

// ReadDirNames returns the names in a directory, in the order in which they were added.
func (t *Tree) ReadDirNames(name string, max int) ([]string, error) {
	_, n, err := t.lookup(name)
	switch {
	case err != nil:
		return nil, err
	case n.err != nil:
		return nil, n.err
	case !n.mode.IsDir():
		return nil, syscall.ENOTDIR
	}
	return slices.Clone(n.entries[:min(len(n.entries), max+1)]), nil
}

// ReadLink returns the target of a symbolic link.
func (t *Tree) ReadLink(name string) (string, error) {
	dir, err := resolve(parent(name), t.readLink)
	if err != nil {
		return "", err
	}
	return t.readLink(strings.TrimPrefix(dir+"/"+path.Base(name), "./"))
}

// Resolve returns a name with all symbolic links resolved.
func (t *Tree) Resolve(name string) (string, error) {
	name, _, err := t.lookup(name)
	return name, err
}

// Stat returns information about a file; it follows links.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	name, n, err := t.lookup(name)
	if err != nil {
		return nil, err
	}
	return treeInfo{name: path.Base(name), node: n}, nil
}

// Lstat returns information about a file; it does not follow a link at the end of the name.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	dir, err := resolve(parent(name), t.readLink)
	if err != nil {
		return nil, err
	}
	n, ok := t.nodes[path.Join(dir, path.Base(name))]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return treeInfo{name: path.Base(name), node: n}, nil
}

// OpenBelow opens a file below a directory.
func (t *Tree) OpenBelow(dir, name string) (fs.File, error) { return t.Open(path.Join(dir, name)) }

type treeFile struct {
	io.Reader
	info treeInfo
}

func (f *treeFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *treeFile) Close() error               { return nil }

type treeInfo struct {
	name string
	node *node
}

func (i treeInfo) Name() string       { return i.name }
func (i treeInfo) Size() int64        { return max(int64(len(i.node.data)), i.node.zeros) }
func (i treeInfo) Mode() fs.FileMode  { return i.node.mode }
func (i treeInfo) ModTime() time.Time { return time.Time{} }
func (i treeInfo) IsDir() bool        { return i.node.mode.IsDir() }
func (i treeInfo) Sys() any           { return nil }

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
