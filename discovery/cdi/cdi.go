// Package cdi discovers the kinds of devices that container runtimes can give to containers by the Container Device Interface.
package cdi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "cdi"

// KindFeature lists the kinds of devices. It has no numbers of devices: DRA drivers write a specification for each claim.
const KindFeature = "cdi.kind"

const (
	// staticDir contains the specifications that administrators and packages install.
	staticDir = "etc/cdi"
	// runDir contains the specifications of this boot: /var/run is a link to /run. See "CDI JSON Specification" in SPEC.md of
	// github.com/cncf-tags/container-device-interface.
	runDir = "run/cdi"
)

// Source discovers kinds of CDI devices.
type Source struct{}

// New returns the source.
func New() Source { return Source{} }

// Name returns "cdi".
func (Source) Name() string { return Name }

// Discover reads all specifications. The feature is absent if /run is not mounted: then nothing is known of the specifications in it.
func (Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	files, err := specifications(h)
	if err != nil || files == nil {
		return r, err
	}
	kinds := map[string]bool{}
	for _, file := range files {
		kind, err := readKind(h, file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted meanwhile, as the specification of a claim is
		case err != nil:
			r.Problem(err)
			kinds[discovery.Unknown] = true
		default:
			kinds[kind] = true
		}
	}
	instances := []map[string]string{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		vendor, class, ok := strings.Cut(kind, "/")
		if !ok {
			class = discovery.Unknown
		}
		instances = append(instances, map[string]string{"kind": kind, "vendor": vendor, "class": class})
	}
	r.Instances(KindFeature, instances)
	return r, nil
}

// Glance lists the files: a new content of a file that has its name already is detected by the next discovery.
func (Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	files, err := specifications(h)
	r.Problem(err)
	r.Flags(KindFeature, files)
	return r, true
}

// specifications returns the names of the files with specifications; nil if /run is not mounted.
func specifications(h host.Host) ([]string, error) {
	if mounted, err := h.Exists(path.Dir(runDir)); err != nil || !mounted {
		return nil, err
	}
	files := []string{}
	for _, dir := range []string{staticDir, runDir} {
		names, err := discovery.ListDevices(h, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if ext := path.Ext(name); ext == ".json" || ext == ".yaml" {
				files = append(files, dir+"/"+name)
			}
		}
	}
	return files, nil
}

// kindForm is the form of a kind: a vendor, which is a domain, and a class.
var kindForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*$`)

// readKind returns the kind of a specification. It does not decode the devices: a specification of many GPUs has a megabyte of YAML,
// which would be the largest part of the worker's memory.
func readKind(h host.Host, file string) (string, error) {
	data, err := h.ReadText(file)
	if err != nil {
		return "", err
	}
	var spec struct {
		Kind string `json:"kind" yaml:"kind"`
	}
	if start := bytes.TrimLeft(data, " \t\r\n"); bytes.HasPrefix(start, []byte("{")) {
		err = json.Unmarshal(data, &spec)
	} else if line := kindLine.Find(data); line != nil {
		err = yaml.Unmarshal(line, &spec)
	}
	if err != nil || !kindForm.MatchString(spec.Kind) {
		return "", discovery.NotA("CDI specification with a kind such as vendor.com/class", file, host.Clean(data))
	}
	return spec.Kind, nil
}

// kindLine matches the field kind of a document in YAML's block style. Fields of devices are indented.
var kindLine = regexp.MustCompile(`(?m)^"?kind"?[ \t]*:.*$`)
