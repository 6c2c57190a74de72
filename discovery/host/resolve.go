package host

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// errNotLink is the error of a link reader for a file that is not a symbolic link.
var errNotLink = errors.New("not a symbolic link")

// resolve returns a name with all symbolic links resolved, calling readlink for one component at a time. The result never leaves
// the root: resolution is lexical, so ".." at the root stays there, and an absolute target starts at the root. The last component
// need not exist.
func resolve(name string, readlink func(string) (string, error)) (string, error) {
	return resolveFrom("", name, readlink)
}

// resolveFrom resolves a name in a directory whose own name contains no link.
func resolveFrom(done, rest string, readlink func(string) (string, error)) (string, error) {
	for links := 0; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			done = parent(done)
			continue
		}
		next := part
		if done != "" {
			next = done + "/" + part
		}
		target, err := readlink(next)
		switch {
		case errors.Is(err, errNotLink):
			done = next
		case err != nil && rest == "" && errors.Is(err, fs.ErrNotExist):
			return next, nil
		case err != nil:
			return "", err
		default:
			if links++; links > MaxLinks {
				return "", syscall.ELOOP
			}
			if path.IsAbs(target) {
				done = ""
			}
			rest = target + "/" + rest
		}
	}
	if done == "" {
		return ".", nil
	}
	return done, nil
}

func parent(name string) string {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return ""
	}
	return name[:i]
}
