package kernel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery/host"
)

// maxConfigSize bounds a decompressed configuration. One with every option has 400 KiB; 10 GB of zeros compress to 10 MB,
// and a bomb must not be read to its end.
const maxConfigSize = 4 << 20

// configFiles are the places where distributions keep the configuration of a kernel, the most trustworthy first: the
// kernel's own copy, then what was installed with it, then sources that may or may not be those it was built from.
func configFiles(release string) []string {
	return []string{
		"proc/config.gz",
		"usr/src/linux-" + release + "/.config",
		"usr/src/linux/.config",
		"usr/lib/modules/" + release + "/config",
		"usr/lib/ostree-boot/config-" + release,
		"usr/lib/kernel/config-" + release,
		"usr/src/linux-headers-" + release + "/.config",
		"lib/modules/" + release + "/config",
		"lib/modules/" + release + "/build/.config",
		"lib/kernel/config-" + release,
		"boot/config-" + release,
	}
}

// kconfigCache holds the configuration parsed last, with what it was parsed from.
type kconfigCache struct {
	from    origin
	options map[string]string
}

// origin tells one configuration from another. /proc/config.gz is stamped with the time of looking, so for files of /proc
// size and time are left out: they are part of the kernel that release names.
type origin struct {
	tree          host.FS
	release, file string
	size          int64
	modified      time.Time
}

// read returns the options of the running kernel: of the given file, an absolute path, or of the first that is there. The
// map must not be modified. No file is no error and no options; one that cannot be read is an error if no other can.
func (c *kconfigCache) read(h host.Host, release, file string) (map[string]string, error) {
	if file != "" {
		return c.load(h, release, strings.TrimPrefix(file, "/"))
	}
	var errs []error
	for _, name := range configFiles(release) {
		options, err := c.load(h, release, name)
		if err == nil {
			return options, nil
		}
		// Some distributions let only root read a copy, while another place has one for everybody.
		errs = append(errs, host.Present(err))
	}
	return nil, errors.Join(errs...)
}

func (c *kconfigCache) load(h host.Host, release, name string) (map[string]string, error) {
	info, err := h.Stat(name)
	if err != nil {
		return nil, err
	}
	from := origin{tree: h.FS, release: release, file: name}
	if !strings.HasPrefix(name, "proc/") {
		from.size, from.modified = info.Size(), info.ModTime()
	}
	if c.options != nil && c.from == from {
		return c.options, nil
	}
	data, err := h.ReadFile(name)
	if err != nil {
		return nil, err
	}
	data, err = decompress(data)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", name, err)
	}
	c.from, c.options = from, ParseConfig(data)
	return c.options, nil
}

// decompress returns the content of a gzip file, or the data itself if it is none.
func decompress(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, maxConfigSize+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxConfigSize {
		return nil, fmt.Errorf("decompressed: %w of %d bytes", host.ErrTooLarge, maxConfigSize)
	}
	return out, nil
}
