package host

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// archive formats the recording. It groups one-line files by directory, as in archives written by hand.
func (r *recorder) archive(head []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out bytes.Buffer
	section := func(title string, data []byte) {
		fmt.Fprintf(&out, "-- %s --\n", title)
		out.Write(data)
		if len(data) > 0 && data[len(data)-1] != '\n' {
			out.WriteByte('\n')
		}
	}
	a := &alias{known: map[string]string{}}
	section("host.json", head)
	lines := map[string][]string{} // by directory
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[name]
		dir, base := path.Dir(name), path.Base(name)
		data := a.content(name, e.data)
		switch {
		case name == ".":
		case e.link != "" && dir == ".":
			section(name+" -> "+e.link, nil)
		case e.link != "":
			lines[dir] = append(lines[dir], base+" -> "+e.link)
		case e.dir:
			lines[name] = append(lines[name], "") // to create it even if it is empty
		case e.err != nil && !e.read:
			section(name+" (error "+errorName(e.err)+")", nil)
		case dir != "." && isLine(base, data):
			lines[dir] = append(lines[dir], strings.TrimRight(base+": "+string(data), " \n"))
		default:
			writeFile(section, name, data)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		text := strings.Join(slices.DeleteFunc(lines[dir], func(l string) bool { return l == "" }), "\n")
		section(dir+"/", []byte(text))
	}
	return a.replace(out.Bytes())
}

// isLine reports whether a file can be written as a line of its directory.
func isLine(name string, data []byte) bool {
	text := strings.TrimSuffix(string(data), "\n")
	return !strings.Contains(name, " ") && !strings.Contains(text, " -> ") && text == strings.TrimSpace(text) &&
		!strings.ContainsAny(text, "\n\r\x00") && utf8.ValidString(text)
}

func writeFile(section func(string, []byte), name string, data []byte) {
	if plain, ok := decompressed(data); ok && isText(plain) {
		section(name+" (gzip)", plain)
		return
	}
	if isText(data) {
		section(name, data)
		return
	}
	section(name+" (base64)", []byte(base64.StdEncoding.EncodeToString(data)))
}

// isText reports whether data can be included in an archive unencoded.
func isText(data []byte) bool {
	return utf8.Valid(data) && !bytes.ContainsRune(data, 0) && !sectionLine.Match(data) && (len(data) == 0 || data[len(data)-1] == '\n')
}

var sectionLine = regexp.MustCompile(`(?m)^-- .* --`)

func decompressed(data []byte) ([]byte, bool) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(z, MaxFileSize+1))
	return plain, err == nil && len(plain) <= MaxFileSize
}

// errorName returns the name of an error in an archive: those that mean "no value", and EIO for all others.
func errorName(err error) string {
	for _, name := range slices.Sorted(maps.Keys(archiveErrors)) {
		if errors.Is(err, archiveErrors[name]) {
			return name
		}
	}
	if errors.Is(err, syscall.EPERM) {
		return "EACCES"
	}
	return "EIO"
}

// alias replaces identifying values by made-up names, the same everywhere.
type alias struct {
	known map[string]string
}

// identities are the files that contain an identifying value.
var identities = map[string]bool{
	"serial": true, "product_serial": true, "board_serial": true, "chassis_serial": true, "product_uuid": true,
	"board_asset_tag": true, "chassis_asset_tag": true, "boot_id": true,
}

// serialLine matches the serial number of ARM boards in /proc/cpuinfo.
var serialLine = regexp.MustCompile(`(?m)^(Serial\s*:).*$`)

func (a *alias) content(name string, data []byte) []byte {
	value := strings.TrimSpace(string(data))
	switch {
	case identities[path.Base(name)] && value != "":
		return []byte(a.of(value, "removed-%d") + "\n")
	case name == "proc/cpuinfo":
		return serialLine.ReplaceAll(data, []byte("${1} removed"))
	}
	return data
}

// macAddress matches a MAC address in a file, and in names of interfaces chosen by udev, such as enx….
var macAddress = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b|\b(?:en|wl|ww|ib|sl)x[0-9a-f]{12}\b`)

// identifiers match other parts of names and strings that identify a machine or give access to it: what to keep before one, and the part.
var identifiers = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b((?:wwn-(?:0x)?|eui[.-]|naa[.-]))([0-9a-f]{16,32})\b`),                           // of disks
	regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)([^\s/@"']+)@`),                                            // of a user, in a URL
	regexp.MustCompile(`(?i)\b((?:[a-z0-9]+[_.-])*(?:password|passwd|passphrase|token|secret)=)([^\s&,;"']+)`), // of the kernel's command line
	regexp.MustCompile(`(?i)\b((?:systemd[.])?machine[_-]id=)([0-9a-f]{32})\b`),                                // of a copied image, too
}

// ReplaceIdentifiers replaces the parts of a string that identify a machine or give access to it, except for addresses and UUIDs: world wide
// names of disks, users and passwords in URLs, passwords and tokens in arguments, and the ID of the machine.
func ReplaceIdentifiers(text string, with func(part string) string) string {
	for _, re := range identifiers {
		text = re.ReplaceAllStringFunc(text, func(found string) string {
			m := re.FindStringSubmatch(found)
			return m[1] + with(m[2]) + found[len(m[1])+len(m[2]):]
		})
	}
	return text
}

// replace replaces what identifies the machine. MAC addresses that consist of zeros or ones stay.
func (a *alias) replace(text []byte) []byte {
	text = []byte(ReplaceIdentifiers(string(text), func(part string) string {
		if strings.HasPrefix(part, "removed-") {
			return part
		}
		return a.of(part, "removed-%d")
	}))
	return macAddress.ReplaceAllFunc(text, func(m []byte) []byte {
		prefix, digits := "", strings.ToLower(strings.ReplaceAll(string(m), ":", ""))
		if len(digits) > 12 {
			prefix, digits = string(m[:3]), digits[3:]
		}
		if strings.Trim(digits, "0") == "" || strings.Trim(digits, "f") == "" {
			return m
		}
		made := a.of(digits, "02000000%04x") // locally administered
		if prefix != "" {
			return []byte(prefix + made)
		}
		var parts []string
		for i := 0; i < len(made); i += 2 {
			parts = append(parts, made[i:i+2])
		}
		return []byte(strings.Join(parts, ":"))
	})
}

// of returns the alias of a value, and creates one for a new value.
func (a *alias) of(value, format string) string {
	if _, ok := a.known[value]; !ok {
		a.known[value] = fmt.Sprintf(format, len(a.known)+1)
	}
	return a.known[value]
}
