// Package local reads features that an administrator or a driver wrote on the node: files of features.d, and what the
// programs of source.d print.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "local"

// The features of the source: both hold the same elements but for those that a directive keeps out.
const (
	LabelFeature = "local.label"
	PlainFeature = "local.feature"
)

const (
	// MaxFileSize bounds one file, and what one hook prints, as NFD does.
	MaxFileSize = 64 << 10
	// MaxFiles bounds how many are read: a mistake in a mount must not turn the worker into a file indexer.
	MaxFiles = 1024
)

// Config is sources.local of the worker's configuration, and where things are.
type Config struct {
	// Directory holds the feature files, such as "etc/kubernetes/node-feature-discovery/features.d".
	Directory string
	// Strict refuses files that anybody but root owns or can write. Otherwise those draw a problem and are read.
	Strict bool
	// FilePrefixes says what a file may speak of: a pattern of names of files or hooks (see path.Match) to the beginnings of
	// the names in them; an empty one is all. What no pattern that matches a file allows is left out. nil allows everything.
	FilePrefixes map[string][]string
	// HooksEnabled runs the programs of HooksDirectory, an absolute path of this process.
	HooksEnabled   bool
	HooksDirectory string
	// HookTimeout bounds one hook; 0 is DefaultHookTimeout.
	HookTimeout time.Duration

	// Files is where Directory is; nil is the host that is discovered. In a container they differ: features.d is mounted
	// where the container expects it, the rest of the host elsewhere.
	Files *host.Host
	// Stderr is given each line that a hook prints there; may be nil.
	Stderr func(hook, line string)
	// Now is for tests; nil is time.Now.
	Now func() time.Time
}

// Source reads feature files and runs hooks.
type Source struct {
	config Config
	expiry time.Time // when the first of the lines that hold for a while ceases to; zero if there are none
}

// New returns the source.
func New(config Config) *Source {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Stderr == nil {
		config.Stderr = func(string, string) {}
	}
	if config.HookTimeout <= 0 {
		config.HookTimeout = DefaultHookTimeout
	}
	return &Source{config: config}
}

// Name is "local".
func (*Source) Name() string { return Name }

// LabelPriority is the highest: what an administrator writes on a node wins over what was found there.
func (*Source) LabelPriority() int { return discovery.LocalPriority }

// Timeout is how long a discovery may take: hooks are programs, not files.
func (s *Source) Timeout() time.Duration {
	if s.config.HooksEnabled {
		return MaxHooksTime
	}
	return discovery.SourceTimeout
}

// Discover reads all files in the order of their names, hooks first as NFD did, the later of two equal names wins. One
// that cannot be read is a problem and hides no other.
func (s *Source) Discover(ctx context.Context, h host.Host) (discovery.Result, error) {
	out := &elements{labels: map[string]string{}, features: map[string]string{}, from: map[string]string{}, now: s.config.Now()}
	result := discovery.NewResult()
	if s.config.HooksEnabled {
		s.runHooks(ctx, out)
	}
	files := h
	if s.config.Files != nil {
		files = s.config.Files.WithContext(ctx)
	}
	if err := s.readFiles(files, out); err != nil {
		return discovery.Result{}, err
	}
	result.Attributes(LabelFeature, out.labels)
	result.Attributes(PlainFeature, out.features)
	result.Labels = maps.Clone(out.labels)
	result.Problems = out.problems
	s.expiry = out.expiry
	return result, nil
}

// Glance describes the feature files without reading them, and looks at the clock. What hooks print can change at any time.
func (s *Source) Glance(ctx context.Context, h host.Host) (discovery.Result, bool) {
	if s.config.HooksEnabled || !s.expiry.IsZero() && !s.config.Now().Before(s.expiry) {
		return discovery.Result{}, false
	}
	if s.config.Files != nil {
		h = s.config.Files.WithContext(ctx)
	}
	r := discovery.NewResult()
	names, err := h.ReadDir(s.config.Directory)
	if len(names) > MaxFiles {
		return r, false // this many are a mistake, which a discovery reports
	}
	r.Problem(host.Present(err))
	seen := make(map[string]string, len(names))
	for _, name := range names {
		info, err := h.Stat(s.config.Directory + "/" + name)
		if err != nil {
			r.Problem(err)
			continue
		}
		seen[name] = fmt.Sprint(info.Size(), info.Mode(), info.ModTime().UnixNano())
	}
	r.Attributes(Name, seen)
	return r, true
}

func (s *Source) readFiles(h host.Host, out *elements) error {
	names, err := h.ReadDir(s.config.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	read := 0
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if read++; read > MaxFiles {
			out.problem(fmt.Errorf("/%s: only the first %d files are read", s.config.Directory, MaxFiles))
			return nil
		}
		s.readFile(h, s.config.Directory+"/"+name, out)
	}
	return nil
}

func (s *Source) readFile(h host.Host, file string, out *elements) {
	info, err := h.Stat(file)
	if err != nil {
		out.problem(err)
		return
	}
	if !info.Mode().IsRegular() {
		return // a sub-directory, or the ..data of a ConfigMap
	}
	if why := writable(info); why != "" {
		if s.config.Strict {
			out.problem(fmt.Errorf("/%s: rejected: %s", file, why))
			return
		}
		out.problem(fmt.Errorf("/%s: %s: these users can label this node", file, why))
	}
	data, err := h.ReadPrefix(file, MaxFileSize+1)
	if err == nil && len(data) > MaxFileSize {
		err = fmt.Errorf("/%s: %w of %d bytes; ignored", file, host.ErrTooLarge, MaxFileSize)
	}
	if err != nil {
		out.problem(err)
		return
	}
	s.parse(out, "/"+file, data)
}

// parse reads what a file says, or a hook printed, as far as it may speak of it.
func (s *Source) parse(out *elements, origin string, data []byte) {
	out.prefixes = nil
	if s.config.FilePrefixes != nil {
		out.prefixes = []string{}
		for pattern, prefixes := range s.config.FilePrefixes {
			if ok, _ := path.Match(pattern, path.Base(origin)); ok { // a wrong pattern matches nothing
				out.prefixes = append(out.prefixes, prefixes...)
			}
		}
	}
	out.parse(origin, data)
}

// writable says who else than root can change a file; empty if nobody.
func writable(info fs.FileInfo) string {
	switch uid, known := owner(info); {
	case info.Mode().Perm()&0o002 != 0:
		return "everybody can write it"
	case info.Mode().Perm()&0o020 != 0:
		return "its group can write it"
	case known && uid != 0:
		return fmt.Sprintf("user %d, not root, owns it", uid)
	}
	return ""
}
