// Package settingstest has a value of each setting other than its default, for tests that a setting takes effect.
package settingstest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/settings"
)

// Other is a value of one setting other than its default, in a file or in a flag.
type Other struct {
	// Name is the key, or the flag with its dashes.
	Name string
	// Key is the key; empty: the setting has a flag only.
	Key string
	// File is a configuration file with the value, unless a flag has it, and with others that it needs.
	File string
	// Flag has the value as an argument; empty: the file has it.
	Flag string
}

// needs are settings without which a value is invalid.
var needs = map[string]map[string]any{
	"lossTaint": {"noExecuteBudget": map[string]any{"every": "1m"}, "featureGates": map[string]any{settings.GateScheduling: true}},
}

// Others returns one value for each setting in a file, and the same in its flag. They follow from the declarations, so that a new setting
// has them too.
func Others() (out []Other) {
	flags, flagOf := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]string{}
	(&settings.Flags{}).Register(flags, settings.Default(), func(s settings.Setting) bool {
		if s.Key == "" {
			out = append(out, Other{Name: "--" + s.Flag, Flag: "--" + s.Flag + "="})
		}
		flagOf[s.Key] = s.Flag
		return true
	})
	for i := range out { // the settings without a key
		value := "other"
		if flags.Lookup(out[i].Name[2:]).Value.Type() == "bool" {
			value = "true"
		}
		out[i].Flag += value
	}
	properties := settings.Properties()["properties"].(map[string]any)
	for key, p := range properties {
		p := p.(map[string]any)
		below, section := p["properties"].(map[string]any)
		if !section {
			out = append(out, others(key, p, flagOf[key])...)
		}
		for name, p := range below {
			out = append(out, others(key+"."+name, p.(map[string]any), flagOf[key+"."+name])...)
		}
	}
	return out
}

// others returns the values of a setting with a key, from its schema.
func others(key string, p map[string]any, flag string) []Other {
	if p["deprecated"] == true {
		return nil
	}
	value, file := other(key, p), maps.Clone(needs[key])
	if file == nil {
		file = map[string]any{}
	}
	var out []Other
	if flag != "" {
		out = append(out, Other{Name: "--" + flag, Key: key, File: write(file), Flag: "--" + flag + "=" + text(value)})
	}
	if group, name, grouped := strings.Cut(key, "."); grouped {
		file[group] = map[string]any{name: value}
	} else {
		file[group] = value
	}
	return append(out, Other{Name: key, Key: key, File: write(file)})
}

// write returns a file; empty: nothing has to be in it.
func write(file map[string]any) string {
	if len(file) == 0 {
		return ""
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// text returns a value as it is written in a flag.
func text(value any) string {
	switch v := value.(type) {
	case []string:
		return strings.Join(v, ",")
	case map[string]any:
		var list []string
		for key, value := range v {
			list = append(list, fmt.Sprintf("%s=%v", key, value))
		}
		return strings.Join(list, ",")
	}
	return fmt.Sprint(value)
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
