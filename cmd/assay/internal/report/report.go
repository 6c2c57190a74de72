// Package report writes findings in machine-readable formats.
package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
)

// entry is the JSON of one finding.
type entry struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column,omitempty"`
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Object   string `json:"object,omitempty"`
	Path     string `json:"path,omitempty"`
	Message  string `json:"message"`
}

// Write writes findings in a format for programs: json, sarif, junit or github. It returns false for any other format. Version is that of
// the command line.
func Write(w io.Writer, format, version string, files []*manifest.File, list []Finding) (bool, error) {
	switch format {
	case "json":
		return true, JSON(w, len(files), list)
	case "sarif":
		return true, SARIF(w, version, list)
	case "junit":
		return true, JUnit(w, files, list)
	case "github":
		return true, GitHub(w, list)
	}
	return false, nil
}

// JSON writes {"files": n, "errors": n, "warnings": n, "findings": [{"file", "line", "column", "severity", "code", "object",
// "path", "message"}]}.
func JSON(w io.Writer, files int, list []Finding) error {
	out := struct {
		Files    int     `json:"files"`
		Errors   int     `json:"errors"`
		Warnings int     `json:"warnings"`
		Findings []entry `json:"findings"`
	}{Files: files, Errors: Errors(list), Findings: []entry{}}
	out.Warnings = len(list) - out.Errors
	for _, f := range list {
		out.Findings = append(out.Findings, entry{
			f.File, f.Line, f.Column, string(f.Severity), f.Code, f.Object, f.Path, f.Message,
		})
	}
	return indent(w, out)
}

func indent(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// text returns the message with the path of the field.
func text(f Finding) string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

type object = map[string]any

// SARIF writes the Static Analysis Results Interchange Format 2.1.0 (OASIS), which code hosts show next to changed lines.
func SARIF(w io.Writer, version string, list []Finding) error {
	results := []object{}
	var rules []object
	seen := map[string]bool{}
	for _, f := range list {
		if !seen[f.Code] {
			seen[f.Code] = true
			rules = append(rules, object{"id": f.Code, "shortDescription": object{"text": strings.ReplaceAll(f.Code, "-", " ")}})
		}
		region := object{"startLine": max(f.Line, 1)}
		if f.Column > 0 {
			region["startColumn"] = f.Column
		}
		results = append(results, object{
			"ruleId": f.Code, "level": string(f.Severity), "message": object{"text": text(f)},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": filepath.ToSlash(f.File)}, "region": region,
			}}},
		})
	}
	if rules == nil {
		rules = []object{}
	}
	return indent(w, object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{
			"tool":    object{"driver": object{"name": "assay", "version": version, "rules": rules}},
			"results": results,
		}},
	})
}

// Suites holds test results in the format of JUnit.
type Suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Suites   []Suite  `xml:"testsuite"`
}

// Suite holds the tests of one file.
type Suite struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Skipped  int    `xml:"skipped,attr,omitempty"`
	Cases    []Case `xml:"testcase"`
}

// Case is one test.
type Case struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Failure *Failure `xml:"failure,omitempty"`
	Skipped *Skipped `xml:"skipped,omitempty"`
}

// Skipped is the reason why a test has no result.
type Skipped struct {
	Message string `xml:"message,attr"`
}

// Failure is the reason why a test failed.
type Failure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// Write computes the totals and writes the XML.
func (s *Suites) Write(w io.Writer) error {
	s.Tests, s.Failures = 0, 0
	for i := range s.Suites {
		suite := &s.Suites[i]
		suite.Tests, suite.Failures, suite.Skipped = len(suite.Cases), 0, 0
		for _, c := range suite.Cases {
			if c.Failure != nil {
				suite.Failures++
			}
			if c.Skipped != nil {
				suite.Skipped++
			}
		}
		s.Tests += suite.Tests
		s.Failures += suite.Failures
	}
	data, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, data)
	return err
}

// JUnit writes one test per file. A test fails if the file has errors.
func JUnit(w io.Writer, files []*manifest.File, list []Finding) error {
	byFile := map[string][]Finding{}
	for _, f := range list {
		if f.Severity == manifest.Error {
			byFile[f.File] = append(byFile[f.File], f)
		}
	}
	out := &Suites{}
	for _, file := range files {
		c := Case{Name: file.Name, Class: "assay.lint"}
		if found := byFile[file.Name]; len(found) > 0 {
			c.Failure = &Failure{Type: found[0].Code, Message: clip.Count(len(found), "error")}
			for _, f := range found {
				c.Failure.Text += fmt.Sprintf("%s:%d:%d: %s\n", f.File, f.Line, f.Column, text(f))
			}
		}
		out.Suites = append(out.Suites, Suite{Name: file.Name, Cases: []Case{c}})
	}
	return out.Write(w)
}

var (
	githubText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// GitHub writes workflow commands that annotate lines of a change in GitHub.
func GitHub(w io.Writer, list []Finding) error {
	for _, f := range list {
		at := fmt.Sprintf("file=%s,line=%d", githubProperty.Replace(f.File), max(f.Line, 1))
		if f.Column > 0 {
			at += fmt.Sprintf(",col=%d", f.Column)
		}
		if _, err := fmt.Fprintf(w, "::%s %s,title=%s::%s\n", f.Severity, at, githubProperty.Replace(f.Code), githubText.Replace(text(f))); err != nil {
			return err
		}
	}
	return nil
}
