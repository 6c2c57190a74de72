package check

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/yamltree"
	"github.com/assay-project/assay/settings"
)

// program is a program with a configuration file. Its own reader decides what is an error: the program does not start with it.
type program struct {
	// file is the end of the name of the file, such as nfd-worker.conf.
	file string
	// review returns the problems of a file; around is the text of the manifest that contains it.
	review func(data, around []byte) []manifest.Problem
	// recognizes reports whether a map without a kind is the configuration.
	recognizes func(root *yaml.Node) bool
}

var worker = &program{
	file:   "worker.conf",
	review: func(data, _ []byte) []manifest.Problem { return workerconfig.Check(data) },
	recognizes: func(root *yaml.Node) bool {
		n := count(root, []string{"core", "sources"})
		return n > 0 && (n == len(root.Content)/2 || slices.ContainsFunc(workerconfig.Default().Keys().Names(), func(key string) bool {
			_, found := yamltree.Follow(root, key)
			return found && strings.Contains(key, ".")
		}))
	},
}

var controller = &program{
	file: "master.conf",
	review: func(data, around []byte) []manifest.Problem {
		return settings.Review(data, bytes.Contains(around, []byte(settings.GateScheduling+"=true")))
	},
	recognizes: func(root *yaml.Node) bool {
		n := count(root, settings.Names())
		return n > 0 && 2*n >= len(root.Content)/2
	},
}

var programs = []*program{worker, controller}

// count returns the number of keys of a map that are known, in any case of their letters.
func count(root *yaml.Node, known []string) (n int) {
	for _, key := range yamltree.Keys(root) {
		if slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, key) }) {
			n++
		}
	}
	return n
}

// programOf returns the program whose configuration a file is, by the name of the file or its content, or nil.
func programOf(name string, root *yaml.Node) *program {
	for _, p := range programs {
		if strings.HasSuffix(path.Base(filepath.ToSlash(name)), p.file) {
			return p
		}
	}
	if root == nil || root.Kind != yaml.MappingNode || yamltree.Field(root, "kind") != nil || yamltree.Field(root, "apiVersion") != nil {
		return nil
	}
	for _, p := range programs {
		if p.recognizes(root) {
			return p
		}
	}
	return nil
}

// programOfFile returns the program whose configuration a whole file is, or nil.
func programOfFile(f *manifest.File) *program {
	if len(f.Documents) == 0 {
		return programOf(f.Name, nil)
	}
	return programOf(f.Name, f.Documents[0].Root)
}

// configuration reviews a file with the reader of the program. around is the text of the manifest that contains it.
func (c *Checker) configuration(p *program, f *manifest.File, around []byte) []manifest.Problem {
	data := f.Text()
	if len(data) == 0 {
		return f.Problems // it is empty, or not text
	}
	out := p.review(data, around)
	if p == worker {
		found, _ := c.custom(f)
		out = append(out, ignored(found)...)
	}
	return out
}

// custom reviews and compiles the custom rules in a configuration of the worker; the set is nil if there are none.
func (c *Checker) custom(f *manifest.File) ([]manifest.Problem, *rules.RuleSet) {
	if len(f.Documents) == 0 {
		return nil, nil
	}
	list := f.Documents[0].Child("sources", "custom")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, nil
	}
	return review.CustomRules(f.Documents[0], list, "sources.custom", c.known)
}

// CustomRules reviews and compiles the custom rules of the worker in a file: those of its configuration, also in a ConfigMap, and lists of rules
// as in a file of custom.d. It returns no problems of other documents.
func (c *Checker) CustomRules(f *manifest.File) (problems []manifest.Problem, sets []*rules.RuleSet) {
	add := func(set *rules.RuleSet) {
		if set != nil {
			sets = append(sets, set)
		}
	}
	if programOfFile(f) == worker {
		_, set := c.custom(f)
		add(set)
		return c.configuration(worker, f, nil), sets
	}
	for _, d := range f.Documents {
		before := len(sets)
		for _, e := range entries(d) {
			if e.program == worker {
				_, set := c.custom(manifest.Parse(e.key, e.data))
				add(set)
			}
		}
		switch {
		case len(sets) > before:
			problems = append(problems, c.inConfigMap(d)...)
		case review.IsCustomRules(d):
			found, set := review.CustomRules(d, d.Root, "", c.known)
			problems = append(problems, found...)
			add(set)
		}
	}
	return problems, sets
}

// Configures reports whether a whole file is the configuration of a program.
func Configures(f *manifest.File) bool { return programOfFile(f) != nil }

// ignored returns the problems of custom rules as warnings: the worker starts without these rules.
func ignored(list []manifest.Problem) []manifest.Problem {
	for i := range list {
		if p := &list[i]; p.Severity == manifest.Error {
			p.Severity, p.Message = manifest.Warning, "the worker ignores this rule: "+p.Message
		}
	}
	return list
}

// entry is a configuration in a ConfigMap.
type entry struct {
	key     string
	path    string
	value   *yaml.Node
	data    []byte
	program *program
}

// entries returns the configurations in a ConfigMap. Other documents have none.
func entries(d *manifest.Document) (out []entry) {
	if d.Kind != "ConfigMap" || d.APIVersion != "v1" {
		return nil
	}
	for _, field := range []string{"data", "binaryData"} {
		all := d.Child(field)
		for i := 0; all != nil && all.Kind == yaml.MappingNode && i+1 < len(all.Content); i += 2 {
			e := entry{key: all.Content[i].Value, value: all.Content[i+1]}
			e.path, e.data = field+"["+e.key+"]", []byte(e.value.Value)
			if field == "binaryData" {
				if decoded, err := base64.StdEncoding.DecodeString(e.value.Value); err == nil {
					e.data = decoded
				}
			}
			if e.program = e.find(); e.program != nil {
				out = append(out, e)
			}
		}
	}
	return out
}

// find returns the program of an entry. Entries with other names than those of configuration files are not parsed.
func (e *entry) find() *program {
	var root *yaml.Node
	if slices.Contains([]string{".conf", ".yaml", ".yml"}, path.Ext(e.key)) {
		if file := manifest.Parse(e.key, e.data); len(file.Documents) > 0 {
			root = file.Documents[0].Root
		}
	}
	return programOf(e.key, root)
}

// inConfigMap reviews the configurations in a ConfigMap.
func (c *Checker) inConfigMap(d *manifest.Document) (out []manifest.Problem) {
	for _, e := range entries(d) {
		if !yamltree.IsString(e.value) && !yamltree.IsNull(e.value) {
			out = append(out, d.Problem(manifest.Error, "type", e.path, fmt.Sprintf(
				"expected a string, found %s: write the configuration behind %s: |", yamltree.Describe(e.value), e.key)))
			continue
		}
		for _, p := range c.configuration(e.program, manifest.Parse(e.key, e.data), d.File().Text()) {
			name := e.path
			if p.Path != "" {
				name += "." + p.Path
			}
			found := d.Problem(p.Severity, p.Code, e.path, p.Message)
			at, exact := d.Embedded(e.value, p.Position)
			if found.Position = at; !exact {
				found.Message = fmt.Sprintf("line %d: %s", p.Line, p.Message)
			}
			found.Path = strings.Replace(found.Path, e.path, name, 1)
			out = append(out, found)
		}
	}
	return out
}

// ConfigurationErrors returns the errors of the configurations in the data of a ConfigMap, as FILE:LINE:COLUMN: message: a program does
// not start with them. Scheduling says that the flags of the controller set the feature gate FeatureScheduling.
func ConfigurationErrors(data map[string]string, scheduling bool) (errs []string) {
	around := ""
	if scheduling {
		around = settings.GateScheduling + "=true"
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		p := programOf(name, nil)
		if p == nil {
			continue
		}
		for _, found := range p.review([]byte(data[name]), []byte(around)) {
			if found.Severity == manifest.Error {
				errs = append(errs, name+":"+found.String())
			}
		}
	}
	return errs
}

// Reviewed reports whether a document is reviewed: one of Assay's objects, a configuration, or pods that require features.
func Reviewed(d *manifest.Document) bool {
	f := d.File()
	return d.Known() || review.IsCustomRules(d) || len(entries(d)) > 0 || review.ReadPods(d) != nil ||
		len(f.Documents) > 0 && f.Documents[0] == d && programOfFile(f) != nil
}
