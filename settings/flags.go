package settings

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags are flags of a program that override a configuration file. The zero value reads no file.
type Flags struct {
	// File is the configuration file, and Options is a configuration that overrides it.
	File, Options string

	given []func(*Settings) error // the flags that were given, in their order
}

// Register adds the flags of settings. Base has the values that the help shows as defaults.
func (f *Flags) Register(flags *pflag.FlagSet, base *Settings, which func(Setting) bool) {
	for _, s := range list {
		if s.Flag == "" || !which(s) {
			continue
		}
		variable := s.variable(base)
		v := &value{kind: flagType(variable), text: flagDefault(variable), set: func(text string) error {
			f.given = append(f.given, func(all *Settings) error { return s.parse(all, text) })
			return s.parse(Default(), text) // errors are returned while flags are parsed, like those of other flags
		}}
		flags.VarPF(v, s.Flag, "", s.usage(variable)).NoOptDefVal = v.implied()
	}
}

// LongFlags adds a second dash to flags of NFD's form, -enable-taints: pflag requires two dashes, and charts and manifests for NFD use
// one.
func LongFlags(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && arg != "-h" {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}

// usage returns the help of the flag: the sentence as a phrase.
func (s *Setting) usage(variable any) string {
	text := strings.TrimSuffix(s.Doc, ".")
	if word, _, _ := strings.Cut(text, " "); word != strings.ToUpper(word) && !strings.HasPrefix(word, "NodeFeature") {
		text = strings.ToLower(text[:1]) + text[1:]
	}
	switch {
	case s.enum != nil:
		text += ": " + strings.Join(s.enum, ", ")
	case flagType(variable) == "strings", flagType(variable) == "gates":
		text += ", separated by commas"
	}
	return text
}

// value implements pflag.Value.
type value struct {
	kind, text string
	set        func(string) error
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

// Set implements pflag.Value. A flag that is given twice counts twice: the last one wins.
func (v *value) Set(text string) error {
	v.text = text
	return v.set(text)
}

// implied is the value of the flag without one.
func (v *value) implied() string {
	if v.kind == "bool" {
		return "true"
	}
	return ""
}

// flagType returns the type that the help shows.
func flagType(variable any) string {
	switch variable.(type) {
	case *bool:
		return "bool"
	case *int:
		return "int"
	case *float64:
		return "float"
	case *time.Duration:
		return "duration"
	case *[]string:
		return "strings"
	case *map[string]bool:
		return "gates"
	}
	return "string"
}

// flagDefault returns the default that the help shows; empty: none.
func flagDefault(variable any) string {
	if _, ok := variable.(*map[string]bool); ok {
		return ""
	}
	text := showDefault(variable)
	if text == "0s" {
		return "0"
	}
	return text
}
