package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// chartDir is the path of the chart.
const chartDir = "charts/assay"

// chart packs the chart like `helm package`, but with the commit's date for all files, where Helm uses the checkout times.
func (r *release) chart(ctx context.Context) error {
	list, err := r.output(ctx, "git", "ls-files", "-z", chartDir)
	if err != nil {
		return err
	}
	var files []file
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		name = "assay/" + strings.TrimPrefix(name, chartDir+"/")
		if name == "assay/Chart.yaml" {
			if data, err = stampChart(data, r.version); err != nil {
				return fmt.Errorf("%s/Chart.yaml: %w", chartDir, err)
			}
			files = append([]file{{name, 0o644, data}}, files...) // readers of charts expect this file first
			continue
		}
		files = append(files, file{name, 0o644, data})
	}
	return writeTarGz(filepath.Join(r.out, "assay-"+strings.TrimPrefix(r.version, "v")+".tgz"), r.date, files)
}

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: (\S+)$`)
	prerelease   = regexp.MustCompile(`(?m)^(  artifacthub\.io/prerelease: ).*$`)
)

// stampChart sets the versions in Chart.yaml: of the chart, of the programs, and of the images.
func stampChart(text []byte, version string) ([]byte, error) {
	before := appVersion.FindSubmatch(text)
	if before == nil || !chartVersion.Match(text) || !prerelease.Match(text) {
		return nil, errors.New("there must be a version, an appVersion and the annotation artifacthub.io/prerelease, each on a line of its own")
	}
	text = bytes.ReplaceAll(text, append([]byte(":"), before[1]...), []byte(":"+version))
	text = chartVersion.ReplaceAll(text, []byte("version: "+strings.TrimPrefix(version, "v")))
	text = appVersion.ReplaceAll(text, []byte("appVersion: "+version))
	return prerelease.ReplaceAll(text, fmt.Appendf(nil, "${1}%q", fmt.Sprint(strings.Contains(version, "-")))), nil
}

// krew sets the version and the checksums of the archives in the manifest for kubectl's plugin manager.
func (r *release) krew(context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.root, "hack/krew/assay.yaml"))
	if err != nil {
		return err
	}
	manifest, err := fillKrew(string(text), r.version, func(archive string) (string, error) {
		return sum(filepath.Join(r.out, archive))
	})
	if err != nil {
		return fmt.Errorf("hack/krew/assay.yaml: %w", err)
	}
	return os.WriteFile(filepath.Join(r.out, "assay-krew.yaml"), []byte(manifest), 0o644)
}

var archiveSum = regexp.MustCompile(`SUM\(([^)]+)\)`)

// fillKrew replaces VERSION, and each SUM(ARCHIVE) by the archive's checksum.
func fillKrew(text, version string, sum func(archive string) (string, error)) (string, error) {
	var problems []error
	text = archiveSum.ReplaceAllStringFunc(text, func(found string) string {
		value, err := sum(archiveSum.FindStringSubmatch(found)[1])
		problems = append(problems, err)
		return value
	})
	return strings.ReplaceAll(text, "VERSION", version), errors.Join(problems...)
}
