package watch

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// changed are the events of a target directory.
	changed = unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// appeared are the events of a directory in which a target could be created.
	appeared = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// maxDeep is the maximum number of directories in a deep target.
	maxDeep = 256
)

// files watches the targets with inotify. For a target that does not exist, it watches the nearest existing parent directory.
type files struct {
	file    *os.File
	fd      int
	targets []Target

	mu      sync.Mutex
	watches map[int][]string // by watch descriptor: sources to announce
	exists  map[string]bool  // by path of a target
}

func newFiles(targets []Target) (*files, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := &files{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, targets: targets, exists: map[string]bool{}}
	f.arm(func(string) {})
	return f, nil
}

// arm sets all watches again, which is cheap: an existing watch is reused. It announces targets that were created or deleted.
func (f *files) arm(notify func(string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.watches
	f.watches = map[int][]string{}
	for _, t := range f.targets {
		ok := f.watch(t.Path, changed, t.Source)
		if ok && t.Deep {
			entries, _ := os.ReadDir(t.Path)
			for i, e := range entries {
				if e.IsDir() && i < maxDeep {
					f.watch(filepath.Join(t.Path, e.Name()), changed, t.Source)
				}
			}
		}
		for dir := t.Path; !ok && dir != "/" && dir != "."; {
			dir = filepath.Dir(dir)
			if _, err := os.Stat(dir); err == nil {
				f.watch(dir, appeared, "")
				break
			}
		}
		if was, known := f.exists[t.Path]; known && was != ok {
			notify(t.Source)
		}
		f.exists[t.Path] = ok
	}
	for wd := range old {
		if _, kept := f.watches[wd]; !kept {
			_, _ = unix.InotifyRmWatch(f.fd, uint32(wd)) // fails if the directory was deleted
		}
	}
}

func (f *files) watch(dir string, mask uint32, source string) bool {
	// One directory can be a target and the parent of another.
	wd, err := unix.InotifyAddWatch(f.fd, dir, mask|unix.IN_MASK_ADD)
	if err != nil {
		return false
	}
	if source != "" {
		f.watches[wd] = append(f.watches[wd], source)
	} else if _, ok := f.watches[wd]; !ok {
		f.watches[wd] = nil
	}
	return true
}

// announce reads inotify events; see inotify(7) for their layout.
func (f *files) announce(message []byte, notify func(string)) {
	structure := false
	for len(message) >= unix.SizeofInotifyEvent {
		wd := int(int32(binary.NativeEndian.Uint32(message)))
		mask := binary.NativeEndian.Uint32(message[4:])
		length := int(binary.NativeEndian.Uint32(message[12:]))
		message = message[min(len(message), unix.SizeofInotifyEvent+length):]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			notify(Everything)
			structure = true
		}
		f.mu.Lock()
		sources := f.watches[wd]
		f.mu.Unlock()
		for _, source := range sources {
			notify(source)
		}
		if mask&unix.IN_ISDIR != 0 || mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 {
			structure = true
		}
	}
	if structure {
		f.arm(notify)
	}
}
