package directory

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
)

// Limits on one directory. ConfigMaps and Secrets are much smaller; the limits protect from errors such as --built-in-rules=/.
const (
	MaxFiles = 1000
	MaxBytes = 16 << 20
)

// Prefix is the prefix of the names of built-in objects in messages and metrics. It cannot occur in the name of a NodeFeatureRule.
const Prefix = "builtin:"

// Set is the content of a directory at one time.
type Set struct {
	// Digest is a hash of the files.
	Digest string
	// Objects are in the order of the files.
	Objects []Object
	// Problems are all errors, by file. A set with problems never replaces one without.
	Problems []string

	size int // compiled size
}

// Object is one NodeFeatureRule in a file.
type Object struct {
	File string
	Rule *nfdv1alpha1.NodeFeatureRule
	set  *rules.RuleSet
}

// Compiled returns the compiled objects.
func (s *Set) Compiled() []assembly.Rules {
	out := make([]assembly.Rules, len(s.Objects))
	for i, o := range s.Objects {
		out[i] = assembly.Rules{Set: o.set, Spec: &o.Rule.Spec}
	}
	return out
}

// file is a file in the directory.
type file struct {
	name string
	data []byte
}

// read returns the YAML files of a directory, sorted by name, and a digest of their content. It skips subdirectories and names that
// begin with a dot, because a mounted ConfigMap has both.
func read(dir string) (files []file, digest string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	total := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name())) // files of a mounted ConfigMap are symbolic links
		if err != nil {
			return nil, "", err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if total += int(info.Size()); total > MaxBytes || len(files) == MaxFiles {
			return nil, "", fmt.Errorf("%s contains more than %d files or %d MiB of rules", dir, MaxFiles, MaxBytes>>20)
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, "", err
		}
		files = append(files, file{e.Name(), data})
		fmt.Fprintf(sum, "%s %d\n%s\n", e.Name(), len(data), data)
	}
	return files, "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func unreadable(dir string, err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Sprintf("%s: %v", dir, err)
}

func compile(files []file, digest string, opt rules.Options) *Set {
	opt.BuiltIn = true
	out := &Set{Digest: digest}
	names := map[string]string{}
	for _, f := range files {
		parsed := manifest.Parse(f.name, f.data)
		for _, p := range parsed.Problems {
			out.complain(f.name, "%s", p)
		}
		for _, d := range parsed.Documents {
			out.add(f.name, d, opt, names)
		}
	}
	return out
}

func (s *Set) complain(file, format string, args ...any) {
	s.Problems = append(s.Problems, file+":"+fmt.Sprintf(format, args...))
}

// add compiles one document.
func (s *Set) add(file string, d *manifest.Document, opt rules.Options, names map[string]string) {
	at := d.Position().String() + ": "
	if d.Kind != manifest.KindRule {
		s.complain(file, "%sthere is a %q where only a %s can be", at, d.Kind, manifest.KindRule)
		return
	}
	rule := &nfdv1alpha1.NodeFeatureRule{}
	problems := append(d.CheckType(), d.Decode(rule)...)
	sensitive := rule.Spec.Sensitive != nil && *rule.Spec.Sensitive
	bad := false
	for _, p := range problems {
		if p.Severity != manifest.Error {
			continue
		}
		bad = true
		s.complain(file, "%s", shown(p, sensitive))
	}
	if bad {
		return
	}
	if other, taken := names[rule.Name]; taken {
		s.complain(file, "%sthe name %s is taken by %s", at, rule.Name, other)
		return
	}
	names[rule.Name] = file
	if field := refers(&rule.Spec); field != "" {
		s.complain(file, "%s%s: built-in rules refer to nothing else; `assay template copy --embed-all` writes them out", at, field)
		return
	}
	set, report := rules.CompileSpec(Prefix+rule.Name, &rule.Spec, opt)
	for _, err := range report.Errors {
		message := err.Error()
		if sensitive {
			message = rules.Place(err.Field)
		}
		s.complain(file, "%s: %s", d.Locate(err.Field), message)
	}
	if s.size += set.Size(); s.size > rules.MaxClusterSize {
		s.complain(file, "%sthe rules of the directory exceed the compile budget of %d bytes; use fewer values and simpler patterns", at, rules.MaxClusterSize)
		return
	}
	s.Objects = append(s.Objects, Object{File: file, Rule: rule, set: set})
}

// refers returns the first field that refers to an object outside of the file, or "".
func refers(spec *nfdv1alpha1.NodeFeatureRuleSpec) string {
	switch {
	case len(spec.BasedOn) > 0:
		return "spec.basedOn"
	case len(spec.RulesFrom) > 0:
		return "spec.rulesFrom"
	}
	for i := range spec.Rules {
		switch {
		case spec.Rules[i].LabelsTemplateFrom != nil:
			return fmt.Sprintf("spec.rules[%d].labelsTemplateFrom", i)
		case spec.Rules[i].VarsTemplateFrom != nil:
			return fmt.Sprintf("spec.rules[%d].varsTemplateFrom", i)
		}
	}
	return ""
}

// shown returns a problem without details that could contain values of a sensitive rule.
func shown(p manifest.Problem, sensitive bool) string {
	if sensitive {
		return fmt.Sprintf("%s: %s: an error of the kind %s; the rule is sensitive, so its content is not shown", p.Position, rules.Place(p.Path), p.Code)
	}
	return p.String()
}
