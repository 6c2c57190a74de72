// Package local reads features from files in features.d, and from the output of programs in source.d, on the node.
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

// Features of the source: both have the same elements, except those that a directive excludes.
const (
	LabelFeature = "local.label"
	PlainFeature = "local.feature"
)

const (
	// MaxFileSize is the maximum size of a file, and of the output of a hook, as in NFD.
	MaxFileSize = 64 << 10
	// MaxFiles is the maximum number of files, in case the wrong directory is mounted.
	MaxFiles = 1024
)

// Config is sources.local of the worker's configuration, and the paths.
type Config struct {
	// Directory contains the feature files, such as "etc/kubernetes/node-feature-discovery/features.d".
	Directory string
	// Strict rejects files that a user other than root owns or can write. Otherwise they are read, and a problem is reported.
	Strict bool
	// FilePrefixes maps patterns of file or hook names (see path.Match) to the allowed prefixes of the feature names in them; an
	// empty prefix allows all. Names that no matching pattern allows are ignored. nil allows everything.
	FilePrefixes map[string][]string
	// HooksEnabled enables running the programs in HooksDirectory, an absolute path in this process.
	HooksEnabled   bool
	HooksDirectory string
	// HookTimeout is the timeout of a hook; 0 means DefaultHookTimeout.
	HookTimeout time.Duration

	// Files is the file system of Directory; nil: that of the discovered host. In a container, features.d is mounted at its
	// original path, and the rest of the host elsewhere.
	Files *host.Host
	// Stderr is called with each line of a hook's error output; can be nil.
	Stderr func(hook, line string)
	// Now is for tests; nil: time.Now.
	Now func() time.Time
}

// Source reads feature files and runs hooks.
type Source struct {
	config Config
	// What the files say is valid from expired, when the last line expired, until expiry, when the next one does; zero if none has or does.
	expired, expiry time.Time
	// last is what was read in the last discovery, by path: that of a file that cannot be read now, or of a hook that fails, still counts.
	last map[string][]byte
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

// Name returns "local".
func (*Source) Name() string { return Name }

// LabelPriority returns the highest priority: labels written by an administrator take precedence over discovered ones.
func (*Source) LabelPriority() int { return discovery.LocalPriority }

// Timeout returns the maximum duration of a discovery, including hooks.
func (s *Source) Timeout() time.Duration {
	if s.config.HooksEnabled {
		return MaxHooksTime
	}
	return discovery.SourceTimeout
}

// Discover runs hooks and then reads files, as in NFD, each in the order of their names; the later of two equal names wins. A file
// that cannot be read, or a hook that fails, is reported as a problem and does not affect the others. What it contained last still counts as
// long as it exists: a hook that takes too long on a busy machine takes no labels away.
func (s *Source) Discover(ctx context.Context, h host.Host) (discovery.Result, error) {
	out := &elements{
		labels: map[string]string{}, features: map[string]string{}, from: map[string]string{}, now: s.config.Now(), read: map[string][]byte{},
	}
	result := discovery.NewResult()
	if s.config.HooksEnabled {
		if err := s.runHooks(ctx, out); err != nil {
			return discovery.Result{}, err
		}
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
	s.expired, s.expiry, s.last = out.expired, out.expiry, out.read
	return result, nil
}

// Glance checks the metadata of feature files, without reading them, and expiry times. The output of hooks can change at any time.
func (s *Source) Glance(ctx context.Context, h host.Host) (discovery.Result, bool) {
	if now := s.config.Now(); s.config.HooksEnabled || now.Before(s.expired) || !s.expiry.IsZero() && !now.Before(s.expiry) {
		return discovery.Result{}, false
	}
	if s.config.Files != nil {
		h = s.config.Files.WithContext(ctx)
	}
	r := discovery.NewResult()
	names, err := h.ReadDir(s.config.Directory)
	if len(names) > MaxFiles {
		return r, false // too many files; a discovery reports that
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
		s.readFile(h, name, out)
	}
	return nil
}

// readFile reads one file. A link out of the directory is not followed: a user who may create one, but not read what it leads to, could
// publish the worker's own token or environment with it.
func (s *Source) readFile(h host.Host, name string, out *elements) {
	file := "/" + s.config.Directory + "/" + name
	data, info, links, err := h.ReadBelow(s.config.Directory, name, MaxFileSize+1)
	switch {
	case errors.Is(err, host.ErrNotRegular):
		return // a subdirectory, or ..data of a ConfigMap
	case errors.Is(err, host.ErrOutside):
		out.problem(fmt.Errorf("%s: rejected: %w: put a copy of the file there", file, host.ErrOutside))
		return
	case err != nil:
		s.failed(out, file, err)
		return
	}
	if why := untrusted(info, links); why != "" {
		if s.config.Strict {
			out.problem(fmt.Errorf("%s: rejected: %s", file, why))
			return
		}
		out.problem(fmt.Errorf("%s: %s: any of these users can set labels of this node", file, why))
	}
	if len(data) > MaxFileSize {
		out.problem(fmt.Errorf("%s: %w of %d bytes; ignored", file, host.ErrTooLarge, MaxFileSize))
		return
	}
	s.parse(out, file, data)
}

// untrusted returns which users other than root chose the content of a file that was found through links; empty if none.
func untrusted(info fs.FileInfo, links []fs.FileInfo) string {
	for _, l := range links {
		if uid, known := owner(l); known && uid != 0 {
			return fmt.Sprintf("user %d, not root, owns the symbolic link %s", uid, l.Name())
		}
	}
	return writable(info)
}

// failed reports a file that cannot be read or a hook that fails, and parses what it contained last.
func (s *Source) failed(out *elements, origin string, err error) {
	last, known := s.last[origin]
	if !known || errors.Is(err, fs.ErrNotExist) {
		out.problem(err)
		return
	}
	out.problem(fmt.Errorf("%w; what it contained last is kept", err))
	s.parse(out, origin, last)
}

// parse parses a file, or the output of a hook, and drops names that the file must not set.
func (s *Source) parse(out *elements, origin string, data []byte) {
	out.prefixes = nil
	if s.config.FilePrefixes != nil {
		out.prefixes = []string{}
		for pattern, prefixes := range s.config.FilePrefixes {
			if ok, _ := path.Match(pattern, path.Base(origin)); ok { // an invalid pattern matches nothing
				out.prefixes = append(out.prefixes, prefixes...)
			}
		}
	}
	out.read[origin] = data
	out.parse(origin, host.Text(data))
}

// writable returns which users other than root can change a file; empty if none.
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
