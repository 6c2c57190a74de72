package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// chartDir is the relative path of the chart.
const chartDir = "../../charts/assay"

// rendering is what to render, and for which cluster.
type rendering struct {
	release, namespace string
	kubernetes         string
	values             map[string]any
}

// render renders a chart like helm install, and returns its files by name.
func render(t *testing.T, c *chartv2.Chart, r rendering) (map[string]string, error) {
	t.Helper()
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(r.kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	capabilities.KubeVersion = *version
	if want := c.Metadata.KubeVersion; want != "" && !util.IsCompatibleRange(want, version.Version) {
		return nil, fmt.Errorf("kubeVersion: the chart is for %s, not for %s", want, version.Version)
	}
	if err := util.ProcessDependencies(c, r.values); err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: r.release, Namespace: r.namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(c, r.values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, values)
}

func load(t *testing.T) *chartv2.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustRender renders the chart for a current cluster.
func mustRender(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	files, err := render(t, load(t), rendering{release: "assay", namespace: "assay-system", kubernetes: "v1.37.2", values: values})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// definitions returns the definitions in crds/ of the chart, which Helm does not render.
func definitions(t *testing.T) []map[string]any {
	t.Helper()
	files := map[string]string{}
	for _, crd := range load(t).CRDObjects() {
		files[crd.Filename] = string(crd.File.Data)
	}
	return objects(t, files)
}

// objects returns the objects in rendered files, in the order of the file names.
func objects(t *testing.T, files map[string]string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range documents(t, files[name]) {
			var object map[string]any
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if object != nil {
				out = append(out, object)
			}
		}
	}
	return out
}

// asJSON returns an object as decoded by encoding/json.
func asJSON(t *testing.T, object map[string]any) any {
	t.Helper()
	var out any
	convert(t, object, &out)
	return out
}

// convert converts an object to its Go type.
func convert(t *testing.T, object map[string]any, into any) {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func documents(t *testing.T, text string) [][]byte {
	t.Helper()
	var out [][]byte
	reader := kyaml.NewYAMLReader(newReader(text))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(document)) > 0 {
			out = append(out, document)
		}
	}
}

// readValues reads a values file.
func readValues(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// set parses values in the form of --set: a map from a path to a value.
func set(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}
