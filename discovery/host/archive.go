package host

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/tools/txtar"
)

// archiveSystem is the content of the section "host.json".
type archiveSystem struct {
	Name string   `json:"nodeName"`
	UTS  *Uname   `json:"uname"`
	Proc CPUFacts `json:"cpu"`
}

func (s *archiveSystem) Uname() (Uname, error) {
	if s.UTS == nil {
		return Uname{}, errors.New("the archive has no uname in host.json")
	}
	return *s.UTS, nil
}

func (s *archiveSystem) NodeName() string { return s.Name }
func (s *archiveSystem) CPU() CPUFacts    { return s.Proc }

// FromArchive returns the machine that an archive describes. An archive is a txtar file, which can be written by hand and reviewed
// in a diff, with these sections, named without the leading slash:
//
//	-- host.json --                    node name, uname and CPU, see Uname and CPUFacts
//	-- proc/modules --                 a file
//	-- sys/class/net/eth0 -> ../x --   a symbolic link
//	-- sys/bus/pci/devices/0000:3b:00.0/ --
//	class: 0x030200                    a directory with a line for each file in it (to which a newline is added) ...
//	driver -> ../../drivers/nvidia     ... or link; subdirectories are created as needed; no lines: an empty directory
//	-- proc/config.gz (gzip) --        a file that is compressed when the archive is read
//	-- sys/a (base64) --               a file with arbitrary bytes
//	-- sys/a (zeros 1073741824) --     a file with the given number of zero bytes
//	-- sys/a (error EIO) --            a file that cannot be opened: EIO, EACCES, EINVAL or ENODEV
//	-- sys/a (pipe) --                 a named pipe
//
// The text before the first section is a comment. Errors name the section.
func FromArchive(data []byte) (Host, error) {
	tree := NewTree()
	system := &archiveSystem{}
	for _, f := range txtar.Parse(data).Files {
		var err error
		if f.Name == "host.json" {
			d := json.NewDecoder(bytes.NewReader(f.Data))
			d.DisallowUnknownFields()
			err = d.Decode(system)
		} else {
			err = addSection(tree, f.Name, f.Data)
		}
		if err != nil {
			return Host{}, fmt.Errorf("section %q: %w", f.Name, err)
		}
	}
	return Host{FS: tree, System: system}, nil
}

func addSection(t *Tree, title string, data []byte) error {
	if name, target, ok := strings.Cut(title, " -> "); ok {
		return named(name, func() { t.AddLink(name, target) })
	}
	if dir, ok := strings.CutSuffix(title, "/"); ok {
		return addLines(t, dir, data)
	}
	name, form, ok := strings.Cut(strings.TrimSuffix(title, ")"), " (")
	if !ok {
		return named(title, func() { t.AddFile(title, data) })
	}
	form, arg, _ := strings.Cut(form, " ")
	switch form {
	case "gzip":
		return named(name, func() { t.AddFile(name, compress(data)) })
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(data)), ""))
		if err != nil {
			return err
		}
		return named(name, func() { t.AddFile(name, raw) })
	case "zeros":
		size, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return err
		}
		return named(name, func() { t.AddZeros(name, size) })
	case "error":
		err, ok := archiveErrors[arg]
		if !ok {
			return fmt.Errorf("unknown error %q", arg)
		}
		return named(name, func() { t.AddBroken(name, err) })
	case "pipe":
		return named(name, func() { t.AddPipe(name) })
	}
	return fmt.Errorf("unknown form %q", form)
}

var archiveErrors = map[string]error{"EIO": syscall.EIO, "EACCES": syscall.EACCES, "EINVAL": syscall.EINVAL, "ENODEV": syscall.ENODEV}

// addLines adds a directory of one-line files.
func addLines(t *Tree, dir string, data []byte) error {
	if err := named(dir, func() { t.AddDir(dir) }); err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		var err error
		if name, target, ok := strings.Cut(line, " -> "); ok {
			err = named(dir+"/"+name, func() { t.AddLink(dir+"/"+name, target) })
		} else if name, value, ok := strings.Cut(line, ": "); ok {
			err = named(dir+"/"+name, func() { t.AddFile(dir+"/"+name, []byte(value+"\n")) })
		} else if name, ok := strings.CutSuffix(line, ":"); ok {
			err = named(dir+"/"+name, func() { t.AddFile(dir+"/"+name, []byte("\n")) })
		} else {
			err = fmt.Errorf("line %q is neither \"name: value\" nor \"name -> target\"", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func named(name string, add func()) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("invalid file name %q: use for example proc/modules", name)
	}
	add()
	return nil
}

func compress(data []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(data) // a bytes.Buffer does not fail
	_ = z.Close()
	return buf.Bytes()
}
