package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/config"
)

// wanted is the keyword with which editors replace the message that a string does not match a pattern.
const wanted = "patternErrorMessage"

// Property is the part of JSON Schema, draft 7, that the schema of the file needs.
type Property = map[string]any

// selector is the schema of a label selector.
var selector = Property{"type": "object", "additionalProperties": false, "properties": Property{
	"matchLabels": Property{"type": "object", "additionalProperties": Property{"type": "string"}},
	"matchExpressions": Property{"type": "array", "items": Property{
		"type": "object", "additionalProperties": false, "required": []any{"key", "operator"}, "properties": Property{
			"key":      Property{"type": "string"},
			"operator": Property{"enum": []any{"In", "NotIn", "Exists", "DoesNotExist"}},
			"values":   Property{"type": "array", "items": Property{"type": "string"}},
		},
	}},
}}

// Schema returns the JSON Schema of the configuration file.
func Schema() Property {
	root := Property{
		"title": "ControllerConfiguration", "description": "Configuration of controller, webhook and extender, nfd-master.conf.",
	}
	maps.Copy(root, Properties())
	root["additionalProperties"] = false
	return root
}

// Properties returns the JSON Schema of a map with the keys of the file. It allows unknown keys, which cause warnings only.
func Properties() Property {
	properties := Property{}
	for name, about := range sections {
		properties[name] = Property{"type": "object", "description": about, "additionalProperties": false, "properties": Property{}}
	}
	put := func(key string, p Property) {
		in := properties
		if group, name, grouped := strings.Cut(key, "."); grouped {
			in, key = properties[group].(Property)["properties"].(Property), name
		}
		in[key] = p
	}
	for i := range list {
		if list[i].Key != "" {
			put(list[i].Key, list[i].property())
		}
	}
	for key, why := range ignored {
		put(key, Property{"deprecated": true, "description": "Accepted from NFD without effect: " + why + "."})
	}
	return Property{"type": "object", "properties": properties}
}

// property returns the JSON Schema of a value.
func (s *Setting) property() Property {
	p := Property{"description": s.Doc}
	for name, bound := range map[string]*float64{"minimum": s.min, "maximum": s.max} {
		if bound != nil {
			p[name] = *bound
		}
	}
	switch v := s.variable(Default()).(type) {
	case *bool:
		p["type"], p["default"] = "boolean", *v
	case *int:
		p["type"], p["default"] = "integer", *v
	case *float64:
		p["type"], p["default"] = "number", *v
	case *time.Duration:
		p["anyOf"], p["default"] = []any{Property{"type": "string", "pattern": config.DurationPattern, wanted: config.DurationForm}, Property{"enum": []any{0}}}, showDefault(v)
	case *[]string:
		p["type"], p["items"] = "array", Property{"type": "string"}
		if s.example == nil {
			p["default"] = append([]string{}, *v...)
		}
	case *map[string]bool:
		p["type"], p["additionalProperties"], p["default"] = "object", Property{"type": "boolean"}, *v
	case **metav1.LabelSelector:
		maps.Copy(p, selector)
	default:
		p["type"], p["default"] = "string", showDefault(v)
	}
	if s.form[0] != "" {
		p["pattern"], p[wanted] = s.form[0], s.form[1]
	}
	if s.enum != nil {
		delete(p, "type")
		p["enum"] = s.enum
	}
	if s.example != nil {
		p["examples"] = []any{s.example}
	}
	return p
}

// Documentation describes one setting.
type Documentation struct {
	// Key is its key in the configuration file, or its flag with dashes if it has no key.
	Key, Doc, Default string
	// Schema is the JSON Schema of its value in the file.
	Schema Property
}

// Documented returns the documentation of all settings, in the order of the declarations.
func Documented() (out []Documentation) {
	for i := range list {
		s := &list[i]
		d := Documentation{s.name(), s.Doc, showDefault(s.variable(Default())), s.property()}
		if _, list := s.initial.([]string); list {
			d.Default = "[" + d.Default + "]"
		}
		out = append(out, d)
	}
	return out
}

// showDefault formats a value.
func showDefault(variable any) string {
	switch v := variable.(type) {
	case *bool:
		return strconv.FormatBool(*v)
	case *string:
		return *v
	case *time.Duration:
		return shortDuration(*v)
	case *[]string:
		return strings.Join(*v, ",")
	case *map[string]bool:
		var out []string
		for _, name := range slices.Sorted(maps.Keys(*v)) {
			out = append(out, fmt.Sprintf("%s=%t", name, (*v)[name]))
		}
		return strings.Join(out, ",")
	case **regexp.Regexp:
		return patternText(*v)
	case *int:
		return strconv.Itoa(*v)
	case *float64:
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	return ""
}

// shortDuration formats a duration without units of which there are none: 10m, not 10m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = strings.TrimSuffix(text, none[1:])
		}
	}
	return text
}
