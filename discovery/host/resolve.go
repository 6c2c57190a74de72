package host

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// errNotLink is what a link reader says of something that is there and is no symbolic link.
var errNotLink = errors.New("not a symbolic link")

// resolve returns the name without symbolic links that a name leads to, asking readlink for one component at a time. The
// result never leaves the root: the walk is over names, so ".." at the top has nowhere to go, and an absolute target
// starts again at the top. The last component may be missing.
func resolve(name string, readlink func(string) (string, error)) (string, error) {
	done, rest := "", name
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
