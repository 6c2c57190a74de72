package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
)

// Record returns an archive of everything that discover reads from a host, in the format of FromArchive: a discovery of the archive
// has the same results. Node name, MAC addresses, serial numbers, asset tags and what ReplaceIdentifiers names are replaced by made-up ones,
// each by the same value everywhere, so that the archive can be shared.
func Record(ctx context.Context, h Host, discover func(context.Context, Host)) ([]byte, error) {
	if h.FS == nil || h.System == nil {
		return nil, errors.New("record: the host has no files")
	}
	r := &recorder{under: h.FS, entries: map[string]*recorded{}}
	discover(ctx, Host{FS: r, System: h.System})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	system := archiveSystem{Name: recordedNode, Proc: h.System.CPU()}
	uts, err := h.System.Uname()
	if err != nil {
		return nil, err
	}
	uts.Nodename = recordedNode
	system.UTS = &uts
	head, err := json.MarshalIndent(system, "", " ")
	if err != nil {
		return nil, err
	}
	return r.archive(head), nil
}

// recordedNode is the node name in every archive.
const recordedNode = "node"

// recorder is a tree that records what is read from another one. It is safe for concurrent use.
type recorder struct {
	under FS

	mu      sync.Mutex
	entries map[string]*recorded // by name without links
}

// recorded is the record of a name: a link, a directory, a file, or only its existence.
type recorded struct {
	link string
	dir  bool
	data []byte // content read so far
	read bool
	err  error // error when reading it
}

// walk returns a name with all links resolved, and records the links.
func (r *recorder) walk(name string) (string, error) {
	return resolve(name, func(n string) (string, error) {
		target, err := r.under.ReadLink(n)
		switch {
		case errors.Is(err, syscall.EINVAL), errors.Is(err, errNotLink):
			return "", errNotLink
		case err == nil:
			r.entry(n).link = target
		}
		return target, err
	})
}

func (r *recorder) entry(name string) *recorded {
	e, ok := r.entries[name]
	if !ok {
		e = &recorded{}
		r.entries[name] = e
	}
	return e
}

// note updates the record of a name, unless the host does not have it.
func (r *recorder) note(name string, err error, change func(*recorded)) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	real, walkErr := r.walk(name)
	if walkErr != nil {
		return
	}
	if e := r.entry(real); err != nil {
		e.err = err
	} else {
		change(e)
	}
}

// Open opens a file and records the content that is read.
func (r *recorder) Open(name string) (fs.File, error) {
	f, err := r.under.Open(name)
	return r.opened(name, f, err)
}

// OpenBelow opens a file below a directory and records the content that is read.
func (r *recorder) OpenBelow(dir, name string) (fs.File, error) {
	f, err := r.under.OpenBelow(dir, name)
	return r.opened(path.Join(dir, name), f, err)
}

func (r *recorder) opened(name string, f fs.File, err error) (fs.File, error) {
	r.note(name, err, func(*recorded) {})
	if err != nil {
		return nil, err
	}
	return &recordedFile{File: f, name: name, recorder: r}, nil
}

// recordedFile records what is read.
type recordedFile struct {
	fs.File
	name     string
	recorder *recorder
	offset   int
}

func (f *recordedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	from := f.offset
	f.offset += n
	var failure error
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		failure = err
	}
	f.recorder.note(f.name, failure, func(e *recorded) {
		e.read = true
		// If a file is read again, the first content is kept.
		if from == len(e.data) {
			e.data = append(e.data, p[:n]...)
		}
	})
	return n, err
}

// ReadDirNames lists a directory and records its entries.
func (r *recorder) ReadDirNames(name string, max int) ([]string, error) {
	names, err := r.under.ReadDirNames(name, max)
	r.note(name, err, func(e *recorded) { e.dir = true })
	// Record the existence of all entries, even if they are not read.
	for _, n := range names {
		child := path.Join(name, n)
		if _, err := r.Stat(child); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if target, err := r.under.ReadLink(child); err == nil {
			r.noteLink(child, target) // a dangling link
		}
	}
	return names, err
}

// ReadLink reads a link and records it.
func (r *recorder) ReadLink(name string) (string, error) {
	target, err := r.under.ReadLink(name)
	if err == nil {
		r.noteLink(name, target)
	}
	return target, err
}

// noteLink records a link without resolving it.
func (r *recorder) noteLink(name, target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	real, err := r.walk(parent(name))
	if err == nil {
		r.entry(path.Join(real, path.Base(name))).link = target
	}
}

// Resolve resolves a name and records its links.
func (r *recorder) Resolve(name string) (string, error) {
	real, err := r.under.Resolve(name)
	r.note(name, err, func(*recorded) {})
	return real, err
}

// Stat returns information about a file and records its existence.
func (r *recorder) Stat(name string) (fs.FileInfo, error) {
	info, err := r.under.Stat(name)
	r.note(name, err, func(e *recorded) { e.dir = e.dir || info.IsDir() })
	return info, err
}

// Lstat returns information about a file and records it if it is a link.
func (r *recorder) Lstat(name string) (fs.FileInfo, error) {
	info, err := r.under.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		_, err = r.ReadLink(name)
	}
	return info, err
}
