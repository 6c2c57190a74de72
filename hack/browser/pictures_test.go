package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// pictures are the pictures in the documentation.
var pictures = map[string]string{
	"fleet": "fleet?columns=kernel.version.full+cpu.model.name+memory.total.mib+gpu.drm.driver+system.osrelease.VERSION_ID+system.dmiid.bios_version",
	"node":  "node?name=node-00008", "rule": "rule?name=nvidia-gpu", "nodes": "fleet?by=nodes&sort=-missing", "playground": "playground?node=node-00000",
}

// maxPicture is the maximum size of a picture in bytes, since every clone of the repository contains it.
const maxPicture = 150_000

// The size of pictures in pixels: as wide as they are displayed.
const pictureWidth, pictureHeight = 1120, 720

// maxColors is the maximum number of colors in a palette.
const maxColors = 256

// compress encodes a picture with a palette of its most frequent colors. A page of text has few.
func compress(t *testing.T, data []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.Color]int{}
	size := picture.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			counts[picture.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	palette := color.Palette(frequent[:min(len(frequent), maxColors)])
	nearest := map[color.Color]uint8{}
	small := image.NewPaletted(size, palette)
	for y := range size.Dy() {
		for x := range size.Dx() {
			c := picture.At(x, y)
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPicturesOfTheDocumentation(t *testing.T) {
	const dir = "../../docs/images/"
	if *update {
		b := open(t, small(t))
		b.do(chromedp.EmulateViewport(pictureWidth, pictureHeight))
		for name, view := range pictures {
			b.visit(view)
			if name == "playground" {
				b.write("#text", strings.Replace(nearly, "op: In", "op: Inn", 1))
				b.wait(`document.querySelector("#gutter .error")`)
				b.write("#text", nearly)
				b.says("#result", "NO MATCH")
			}
			eval[bool](b, `(document.activeElement?.blur(), true)`)
			data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "ui-"+name+".png", compress(t, data))
		}
	}
	for name := range pictures {
		info, err := os.Stat(dir + "ui-" + name + ".png")
		switch {
		case err != nil:
			t.Errorf("%v; run this test with -update", err)
		case info.Size() > maxPicture:
			t.Errorf("%s has %d bytes, want at most %d", info.Name(), info.Size(), maxPicture)
		}
	}
}
