package kernel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery/host"
)

// maxConfigSize is the maximum size of a decompressed configuration. One with every option has 400 KiB; 10 MB can decompress to 10
// GB of zeros, so decompression must stop early.
const maxConfigSize = 4 << 20

// configFiles are the paths where distributions store the configuration of a kernel, most reliable first: the kernel's own copy,
// then the installed one, then that of the sources, from which the kernel may not have been built. They are NFD's, in its order, and
// those of systems without a separate /usr.
func configFiles(release string) []string {
	if release == "" {
		return []string{"proc/config.gz", "usr/src/linux/.config"}
	}
	return []string{
		"proc/config.gz",
		"usr/src/linux-" + release + "/.config",
		"usr/src/linux-rt-" + release + "/.config",
		"usr/src/linux/.config",
		"usr/lib/modules/" + release + "/config",
		"usr/lib/ostree-boot/config-" + release,
		"usr/lib/kernel/config-" + release,
		"usr/src/linux-headers-" + release + "/.config",
		"lib/modules/" + release + "/config",
		"lib/modules/" + release + "/build/.config",
		"lib/kernel/config-" + release,
		"usr/src/linux-rt-headers-" + release + "/.config",
		"boot/config-" + release,
	}
}

// kconfigCache holds the last parsed configuration and its origin.
type kconfigCache struct {
	from    origin
	options map[string]string
}

// origin identifies a configuration. The modification time of /proc/config.gz is the current time, so size and time are omitted for
// files in /proc, which depend on the kernel release only.
type origin struct {
	tree          host.FS
	release, file string
	size          int64
	modified      time.Time
}

// read returns the options of the running kernel, from the given file (an absolute path) or the first default file that can be read.
// The map must not be modified. Without options there is an error: an option that could not be read is not an option that is not set.
func (c *kconfigCache) read(h host.Host, release, file string) (map[string]string, error) {
	if file != "" {
		return c.load(h, release, strings.TrimPrefix(file, "/"))
	}
	var errs []error
	names := configFiles(release)
	for _, name := range names {
		options, err := c.load(h, release, name)
		if err == nil {
			return options, nil
		}
		// Some distributions restrict one copy to root and have another one that all users can read.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, host.ErrNotMounted) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("not found in /%s; set sources.kernel.kconfigFile if it is elsewhere", strings.Join(names, ", /"))
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
	data = host.Text(data)
	options := ParseConfig(data)
	if len(options) == 0 {
		return nil, fmt.Errorf("/%s sets no option, such as CONFIG_SMP=y", name)
	}
	if data[len(data)-1] != '\n' {
		return nil, fmt.Errorf("/%s ends in the middle of a line: it is not the whole configuration", name)
	}
	c.from, c.options = from, options
	return c.options, nil
}

// decompress returns the content of a gzip file, or the data itself if it is not compressed.
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
