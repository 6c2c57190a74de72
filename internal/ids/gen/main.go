// Command gen generates the embedded lists of IDs from the Debian packages pci.ids and usb.ids. It keeps the names of vendors,
// devices and classes, and drops subsystems, interfaces and comments.
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	pci := flag.String("pci", "/usr/share/misc/pci.ids", "the list of PCI ids")
	usb := flag.String("usb", "/usr/share/misc/usb.ids", "the list of USB ids")
	flag.Parse()
	for to, from := range map[string]string{"pci.ids.gz": *pci, "usb.ids.gz": *usb} {
		if err := convert(from, to); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func convert(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	wanted := false
	for _, line := range strings.SplitAfter(string(data), "\n") {
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#' || strings.HasPrefix(line, "\t\t"):
			continue
		case line[0] != '\t':
			wanted = strings.HasPrefix(line, "C ") || len(line) > 5 && line[4] == ' '
		}
		if wanted {
			if _, err := z.Write([]byte(line)); err != nil {
				return err
			}
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}
