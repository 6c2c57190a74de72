package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// picture is a picture in the documentation: parts beside one another.
type picture struct {
	width, height int64
	parts         []part
}

// part is a page in a color scheme, of a cluster with problems or of an ordinary one.
type part struct {
	view, scheme string
	ordinary     bool
}

// pictures are the pictures in the documentation.
var pictures = map[string]picture{
	"overview":      {1280, 900, []part{{"overview", "light", false}}},
	"overview-dark": {1280, 440, []part{{"overview", "dark", true}}},
	"overview-phone": {390, 1000, []part{
		{"overview", "light", false}, {"overview", "dark", false}, {"overview", "light", true}, {"overview", "dark", true},
	}},
	"node":       {pictureWidth, pictureHeight, []part{{"node?name=node-00008", "light", false}}},
	"rule":       {pictureWidth, pictureHeight, []part{{"rule?name=nvidia-gpu", "light", false}}},
	"nodes":      {pictureWidth, pictureHeight, []part{{"fleet?sort=state", "light", false}}},
	"playground": {pictureWidth, pictureHeight, []part{{"playground?node=node-00000", "light", false}}},
}

// maxPicture is the maximum size of a picture in bytes, since every clone of the repository contains it.
const maxPicture = 150_000

// The size of pictures in pixels: as wide as they are displayed.
const pictureWidth, pictureHeight = 1120, 720

// maxColors is the maximum number of colors in a palette.
const maxColors = 256

// beside puts pictures side by side.
func beside(t *testing.T, list [][]byte) image.Image {
	t.Helper()
	var out *image.RGBA
	for i, data := range list {
		one, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		size := one.Bounds()
		if out == nil {
			out = image.NewRGBA(image.Rect(0, 0, len(list)*size.Dx(), size.Dy()))
		}
		draw.Draw(out, size.Add(image.Pt(i*size.Dx(), 0)), one, image.Point{}, draw.Src)
	}
	return out
}

// compress encodes a picture with a palette of its most frequent colors. A page of text has few.
func compress(t *testing.T, picture image.Image) []byte {
	t.Helper()
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
		sites := map[bool]*tab{false: open(t, small(t, 240)), true: open(t, ordinary(t))}
		for name, p := range pictures {
			var list [][]byte
			for _, part := range p.parts {
				b := sites[part.ordinary]
				b.scheme(part.scheme)
				b.do(chromedp.EmulateViewport(p.width, p.height))
				b.visit(part.view)
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
				list = append(list, data)
			}
			write(t, dir, "ui-"+name+".png", compress(t, beside(t, list)))
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
