// Command probe uses one of everything that TestRowsOfTheTable adds, and prints the results.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/schema"
	"github.com/assay-project/assay/settings"
)

const rule = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: rows}
spec:
  rules:
    - name: uses every addition
      matchFeatures: [{feature: cpus.device, matchExpressions: {op: {op: StartsWith, value: [added]}, value: {op: IsUnset}}}]
      conditions: [{op: is-row, args: {value: "{node.row()}"}}]
      labels: {expression: "{node.row()}"}
      labelsTemplate: 'template={{ row "text" }}'
      actions: [{op: row-log, args: {msg: added}}]
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var obj nfdv1alpha1.NodeFeatureRule
	for _, d := range manifest.Parse("rows.yaml", []byte(rule)).Documents {
		for _, problem := range d.Decode(&obj) {
			fmt.Println(problem)
		}
	}
	for _, warning := range lint.Spec(&obj.Spec, lint.Options{}) {
		fmt.Println(warning)
	}
	set, report := rules.Compile(&obj, rules.Options{})
	if !report.OK() {
		return report.Errors.ToAggregate()
	}
	sources := builtin.Sources(builtin.DefaultConfig())
	sources = slices.DeleteFunc(sources, func(s discovery.Source) bool { return s.Name() != "cpus" }) // the only source that needs no host
	found := discovery.Run(context.Background(), host.Host{}, sources)
	outcome := rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.New(&found.Features, nil)})
	for key, value := range outcome.Labels() {
		fmt.Printf("label %s=%s\n", key, value)
	}
	for _, m := range outcome.Messages() {
		fmt.Println("message", m.Text)
	}
	text, err := schema.Of("NodeFeatureRule")
	if err != nil {
		return err
	}
	for _, name := range []string{"IsUnset", "StartsWith", "is-row", "row-log"} {
		if strings.Contains(string(text), `"`+name+`"`) {
			fmt.Println("schema", name)
		}
	}
	if slices.Contains(workerconfig.Default().Keys().Names(), "sources.cpus") {
		fmt.Println("source cpus can be configured")
	}
	if slices.Contains(rules.TemplateFunctions(), "row") {
		fmt.Println("function row")
	}
	if err := setting(); err != nil {
		return err
	}
	if strings.Contains((&keys.Policy{}).LabelName("row.kubernetes.io/x").Message(), "row says protected") {
		fmt.Println("protected: row says protected")
	}
	return nil
}

// setting reads the added setting from a file and prints what the programs derive from its declaration.
func setting() error {
	s := settings.Default()
	if warnings, err := s.Read("file", []byte("restrictions: {disableLabel: [from file]}")); err != nil || len(warnings) > 0 {
		return fmt.Errorf("%v, %w", warnings, err)
	}
	// The field exists in the overlay only.
	fmt.Println("setting", reflect.Indirect(reflect.ValueOf(s)).FieldByName("DisableLabel").Index(0))
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&settings.Flags{}).Register(flags, s, func(s settings.Setting) bool { return s.Assay })
	fmt.Println("setting of --disable-label:", flags.Lookup("disable-label").Usage)
	text, err := yaml.Marshal(settings.Schema())
	if err != nil {
		return err
	}
	var schema struct {
		Properties struct {
			Restrictions struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		return err
	}
	fmt.Println("setting restrictions.disableLabel:", schema.Properties.Restrictions.Properties["disableLabel"].Description)
	return nil
}
