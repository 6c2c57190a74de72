package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
)

// Setting is the declaration of one setting.
type Setting struct {
	// Key is its key in the configuration file, with dots; empty: it has a flag only.
	Key string
	// Flag is the name of its flag, which overrides the file; empty: none.
	Flag string
	// Doc is one sentence about what it is.
	Doc string
	// Assay says that the command line has the flag: outcomes or reviews depend on the setting.
	Assay bool
	// Controller says that only the subcommand controller has the flag, and not all that compile rules.
	Controller bool

	enum []string
	// form is the regular expression of a string, and what it means, for editors and the chart; Check is stricter.
	form     [2]string
	min, max *float64
	example  any
	variable func(*Settings) any // a pointer to its value
	initial  any                 // the default, of the type of the value
	parse    func(s *Settings, text string) error
}

// declare returns the declaration of a setting with its variable and default.
func declare[T any](key string, variable func(*Settings) *T, initial T, doc string, more ...func(*Setting)) Setting {
	s := Setting{Key: key, Doc: doc, variable: func(all *Settings) any { return variable(all) }, initial: initial}
	s.parse = func(all *Settings, text string) error { return parse(variable(all), text) }
	for _, f := range more {
		f(&s)
	}
	return s
}

func flag(name string) func(*Setting) { return func(s *Setting) { s.Flag = name } }
func controllerFlag(name string) func(*Setting) {
	return func(s *Setting) { s.Flag, s.Controller = name, true }
}
func inAssay(s *Setting)                    { s.Assay = true }
func oneOf(values ...string) func(*Setting) { return func(s *Setting) { s.enum = values } }
func atLeast(least float64) func(*Setting)  { return func(s *Setting) { s.min = &least } }
func example(value any) func(*Setting)      { return func(s *Setting) { s.example = value } }
func form(pattern, wanted string) func(*Setting) {
	return func(s *Setting) { s.form = [2]string{pattern, wanted} }
}

// share is the range of a part of all nodes.
func share(s *Setting) { s.min, s.max = new(float64), ptr(1.0) }

func ptr[T any](v T) *T { return &v }

// gate returns the declaration of a flag that sets a feature gate.
func gate(name, feature, doc string) Setting {
	on := false
	return Setting{
		Flag: name, Doc: doc, Assay: true, variable: func(*Settings) any { return &on }, initial: false,
		parse: func(s *Settings, text string) error {
			enabled, err := strconv.ParseBool(text)
			s.FeatureGates[feature] = enabled
			return err
		},
	}
}

// name is what messages call the setting.
func (s *Setting) name() string {
	if s.Key != "" {
		return s.Key
	}
	return "--" + s.Flag
}

// reset sets the default.
func (s *Setting) reset(all *Settings) {
	switch v := s.variable(all).(type) {
	case *bool:
		*v = s.initial.(bool)
	case *string:
		*v = s.initial.(string)
	case *int:
		*v = s.initial.(int)
	case *float64:
		*v = s.initial.(float64)
	case *time.Duration:
		*v = s.initial.(time.Duration)
	case *[]string:
		*v = slices.Clone(s.initial.([]string))
	case *map[string]bool:
		*v = maps.Clone(s.initial.(map[string]bool))
	case **regexp.Regexp:
		*v = s.initial.(*regexp.Regexp)
	case **metav1.LabelSelector:
		*v = s.initial.(*metav1.LabelSelector)
	default:
		panic(fmt.Sprintf("setting %s has the type %T", s.name(), v))
	}
}

// field returns how the value in a file is read.
func (s *Setting) field(all *Settings) config.Field {
	switch v := s.variable(all).(type) {
	case *bool:
		return config.Into(v)
	case *string:
		return config.Into(v)
	case *int:
		return config.Into(v)
	case *float64:
		return config.Into(v)
	case *time.Duration:
		return config.Into(v)
	case *[]string:
		return config.Into(v)
	case *map[string]bool:
		return config.Parsed(func(more map[string]bool) error { // gates that are not named keep their values
			maps.Copy(*v, more)
			return nil
		})
	case **regexp.Regexp:
		return config.Parsed(func(text string) error { return parse(v, text) })
	case **metav1.LabelSelector:
		return config.Tree(func(n *yaml.Node) error { return decodeSelector(v, n) })
	default:
		panic(fmt.Sprintf("setting %s has the type %T", s.name(), v))
	}
}

// keysOf declares the keys of the file.
func keysOf(all *Settings) config.Keys {
	root, below := config.Keys{}, map[string]config.Keys{}
	put := func(key string, field config.Field) {
		group, name, grouped := strings.Cut(key, ".")
		if !grouped {
			root[key] = field
			return
		}
		if below[group] == nil {
			below[group] = config.Keys{}
			root[group] = config.Section(below[group])
		}
		below[group][name] = field
	}
	for i := range list {
		if list[i].Key != "" {
			put(list[i].Key, list[i].field(all))
		}
	}
	for key, why := range ignored {
		put(key, config.Ignored(why))
	}
	return root
}

// parse sets a variable to the value of a flag.
func parse(variable any, text string) (err error) {
	switch v := variable.(type) {
	case *bool:
		*v, err = strconv.ParseBool(text)
	case *string:
		*v = text
	case *int:
		*v, err = strconv.Atoi(text)
	case *float64:
		*v, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		*v, err = config.Duration(text)
	case *[]string:
		*v = nil
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*v = append(*v, item)
			}
		}
	case *map[string]bool:
		return parseGates(*v, text)
	case **regexp.Regexp: // empty: nil
		if *v = nil; text != "" {
			*v, err = regexp.Compile(text)
		}
	default:
		err = fmt.Errorf("a %T has no flag", variable)
	}
	return err
}

func parseGates(gates map[string]bool, text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, on, _ := strings.Cut(strings.TrimSpace(pair), "=")
		enabled, err := strconv.ParseBool(on)
		if err != nil {
			return fmt.Errorf("%q: write NAME=true or NAME=false", pair)
		}
		gates[name] = enabled
	}
	return nil
}

func decodeSelector(to **metav1.LabelSelector, n *yaml.Node) error {
	if n == nil {
		return nil
	}
	selector := &metav1.LabelSelector{}
	d := json.NewDecoder(bytes.NewReader(yamltree.JSON(n)))
	d.DisallowUnknownFields()
	err := d.Decode(selector)
	if err == nil {
		_, err = metav1.LabelSelectorAsSelector(selector)
	}
	if err != nil {
		return fmt.Errorf("invalid label selector: %w", err)
	}
	*to = selector
	return nil
}

func patternText(pattern *regexp.Regexp) string {
	if pattern == nil {
		return ""
	}
	return pattern.String()
}
