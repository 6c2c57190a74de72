package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/cmd/assay/report"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// fixFiles rewrites what is safe to rewrite in rules. Files without anything to fix are not touched; of others the comments
// are kept, and the indentation becomes that of two blanks.
func fixFiles(cmd *cobra.Command, paths []string) error {
	for _, path := range paths {
		if path == "-" {
			return fmt.Errorf("--fix rewrites files; standard input is none")
		}
		data, err := input.Read(path, nil)
		if err != nil {
			continue // reported with the findings
		}
		fixed, notes := fixText(path, data)
		if fixed != nil && lintErrors(path, fixed) > lintErrors(path, data) {
			continue // the findings show what is wrong with the file as it is
		}
		for _, note := range notes {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: fixed: %s\n", path, note)
		}
		if fixed == nil {
			continue
		}
		if err := replaceFile(path, fixed); err != nil {
			return err
		}
	}
	return nil
}

// lintErrors counts the errors in a file. A fix that adds one is not made.
func lintErrors(name string, data []byte) int {
	file := manifest.Parse(name, data)
	return report.Errors(newChecker(review.Known{}, file).file(file))
}

// fixText returns the text with what is safe rewritten, nil if nothing is.
func fixText(name string, data []byte) ([]byte, []convert.Note) {
	roots, err := compose.ParseTrees(name, data)
	if err != nil {
		return nil, nil // reported with the findings
	}
	var notes []convert.Note
	for _, root := range roots {
		list := rulesIn(root.Content[0])
		if list == nil {
			continue
		}
		if changed, err := convert.MatchOn(list); err == nil {
			notes = append(notes, changed...)
		}
		notes = append(notes, convert.LongForm(list)...)
		notes = append(notes, convert.LowerHex(list)...)
	}
	if len(notes) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, root := range roots {
		if err := e.Encode(root); err != nil {
			return nil, nil
		}
	}
	if err := e.Close(); err != nil {
		return nil, nil
	}
	return b.Bytes(), notes
}

// rulesIn returns the rules of an object, nil if it has none.
func rulesIn(top *yaml.Node) *yaml.Node {
	if top.Kind == yaml.SequenceNode {
		return nil // the worker's own rules, which may have short forms
	}
	switch value := manifest.Field(top, "kind"); {
	case value == nil:
		return nil
	case value.Value == "NodeFeatureGroup":
		return manifest.Field(manifest.Field(top, "spec"), "featureGroupRules")
	case value.Value == "NodeFeatureRule" || value.Value == "NodeFeatureRuleTemplate":
		return manifest.Field(manifest.Field(top, "spec"), "rules")
	}
	return nil
}

// replaceFile puts new content in the place of a file, all of it or nothing.
func replaceFile(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".assay-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), info.Mode().Perm()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
