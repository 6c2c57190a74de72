// Command generate writes the generated parts of the chart: webhook configurations, the IDs of the library, the schema
// and the documentation of the values, and, from the rendered chart on standard input, the kustomize base.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/library"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/webhook"
)

const chartDir = "charts/assay"

func main() {
	base := flag.String("base", "", "write the kustomize base from standard input into this `directory`, and nothing else")
	flag.Parse()
	run := chart
	if *base != "" {
		run = func() error { return kustomize(os.Stdin, *base) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// chart writes everything that needs no rendered chart.
func chart() error {
	if err := definitions(charts.CRDNames(), "charts/kustomization.yaml"); err != nil {
		return err
	}
	if err := webhooks(); err != nil {
		return err
	}
	if err := libraryIDs(); err != nil {
		return err
	}
	if err := names(); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		return err
	}
	if data, err = describe(data); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(chartDir, "values.yaml"), data, 0o644); err != nil {
		return err
	}
	root, err := parse(data)
	if err != nil {
		return err
	}
	schema, err := root.schema()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(chartDir, "values.schema.json"), schema, 0o644); err != nil {
		return err
	}
	return os.WriteFile("docs/values.md", root.markdown(), 0o644)
}

// libraryIDs writes the IDs of the library, one per line, with which the chart validates its value.
func libraryIDs() error {
	entries, err := library.Entries()
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return os.WriteFile(filepath.Join(chartDir, "files", "library.txt"), []byte(strings.Join(ids, "\n")+"\n"), 0o644)
}

// names writes the names that have a meaning in the configuration of the worker, and the namespaces that no setting opens. The notes warn
// about other names and about these namespaces.
func names() error {
	data, err := yaml.Marshal(struct {
		workerconfig.Names
		ProtectedNamespaces []keys.ProtectedNamespace `json:"protectedNamespaces"`
	}{workerconfig.KnownNames(), keys.ProtectedNamespaces()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(chartDir, "files", "names.yaml"), data, 0o644)
}

// webhooks writes the webhook configurations, which the chart installs if the certificate of the webhook is given. Otherwise the
// webhook installs them itself.
func webhooks() error {
	options := webhook.ConfigurationOptions{Namespace: "assay-system", Service: "assay-webhook"}
	mutating, validating := webhook.SchedulingConfigurations(options)
	objects := map[string]any{
		"early.yaml": webhook.EarlyConfiguration(options), "rules.yaml": webhook.Configuration(options),
		"mutating.yaml": mutating, "validating.yaml": validating, "selectors.yaml": webhook.SelectorConfiguration(options),
	}
	dir := filepath.Join(chartDir, "files", "webhooks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
