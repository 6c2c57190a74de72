// Package settingstest has a value of each setting other than its default, for tests that a setting takes effect.
package settingstest

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/settings"
)

// Other is a value of one setting other than its default.
type Other struct {
	// Name is its key, or its flag if it has no key.
	Name string
	// File is a configuration file with the value, and with others that it needs; empty: the setting has a flag only.
	File string
	// Flag has the value as an argument; empty: the setting has no flag, or the flag needs File too.
	Flag string
}

// needs are settings without which a value is invalid.
var needs = map[string]map[string]any{
	"lossTaint": {"noExecuteBudget": map[string]any{"every": "1m"}, "featureGates": map[string]any{settings.GateScheduling: true}},
}

// Others returns one value for each setting. They follow from the declarations, so that a new setting has one too.
func Others() (out []Other) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&settings.Flags{}).Register(flags, settings.Default(), func(settings.Setting) bool { return true })
	properties := settings.Properties()["properties"].(map[string]any)
	keys := map[string]any{}
	for key, p := range properties {
		p := p.(map[string]any)
		below, section := p["properties"].(map[string]any)
		if !section {
			keys[key] = p
		}
		for name, p := range below {
			keys[key+"."+name] = p
		}
	}
	for key, p := range keys {
		p := p.(map[string]any)
		if p["deprecated"] == true {
			continue
		}
		o := Other{Name: key}
		value := other(key, p)
		file := map[string]any{}
		for name, needed := range needs[key] {
			file[name] = needed
		}
		group, name, grouped := strings.Cut(key, ".")
		if grouped {
			file[group] = map[string]any{name: value}
		} else {
			file[group] = value
		}
		text, err := yaml.Marshal(file)
		if err != nil {
			panic(err)
		}
		o.File = string(text)
		out = append(out, o)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" && f.DefValue == "false" {
			out = append(out, Other{Name: "--" + f.Name, Flag: "--" + f.Name + "=true"})
		}
	})
	return append(out, Other{Name: "--instance", Flag: "--instance=blue"})
}

// other returns a value that is not the default in the schema of a setting.
func other(key string, p map[string]any) any {
	if list, ok := p["examples"].([]any); ok {
		return list[0]
	}
	if list, ok := p["enum"].([]string); ok {
		return list[len(list)-1]
	}
	switch v := p["default"].(type) {
	case bool:
		return !v
	case int:
		return v + 1
	case float64:
		return v / 2
	case []string:
		return append([]string{"more.example.com"}, v...)
	case map[string]bool:
		return map[string]any{settings.GateGroups: false}
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return (d + time.Second).String()
		}
		return "other"
	}
	panic(fmt.Sprintf("setting %s: add an example to its declaration", key))
}
