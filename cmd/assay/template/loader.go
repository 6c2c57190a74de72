package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/yamltree"
)

const (
	// fetchTimeout is the maximum time of one download. A document has at most 4 MiB.
	fetchTimeout = 30 * time.Second
	// maxRedirects is the maximum number of redirects: enough for a custom domain that redirects to a release asset.
	maxRedirects = 5
)

// loader loads documents. It reads each document only once, so that all references see the same content.
type loader struct {
	ctx  context.Context
	deps Deps
	in   io.Reader
	docs map[locator]*compose.YAML
	// embedFiles replaces labelsTemplateFrom.file and varsTemplateFrom.file by the content of the files.
	embedFiles bool
}

func newLoader(ctx context.Context, deps Deps, in io.Reader) *loader {
	return &loader{ctx: ctx, deps: deps, in: in, docs: map[locator]*compose.YAML{}}
}

// argument loads a document that is passed on the command line.
func (l *loader) argument(arg string) (*compose.YAML, error) {
	at, err := argumentLocator(arg)
	if err != nil {
		return nil, err
	}
	doc, err := l.load(at)
	if err == nil && doc == nil {
		return nil, fmt.Errorf("%s not found", at)
	}
	return doc, err
}

// base loads a document that another document refers to, or returns nil if it does not exist.
func (l *loader) base(from *compose.YAML, r compose.Ref) (*compose.YAML, error) {
	at, err := resolveRef(locator(from.ID), r)
	if err != nil {
		return nil, err
	}
	return l.load(at)
}

// resolveRef returns the location of a base.
func resolveRef(from locator, r compose.Ref) (locator, error) {
	switch {
	case r.Kind == compose.ByName:
		return from.resolve(clusterScheme + r.Locator)
	case r.Kind == compose.ByURL && !locator(r.Locator).remote():
		return "", fmt.Errorf("url %q: want https://HOST/PATH", r.Locator)
	case r.Kind == compose.ByFile && scheme.MatchString(r.Locator):
		return "", fmt.Errorf("file %q: want a path, without a scheme", r.Locator)
	}
	return from.resolve(r.Locator)
}

func (l *loader) load(at locator) (*compose.YAML, error) {
	if doc, ok := l.docs[at]; ok {
		return doc, nil
	}
	text, err := l.read(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	doc, err := l.parse(at, text)
	if err != nil {
		return nil, err
	}
	l.docs[at] = doc
	return doc, nil
}

func (l *loader) parse(at locator, text []byte) (*compose.YAML, error) {
	doc, err := compose.ParseYAML(string(at), text)
	if err != nil {
		return nil, err
	}
	convert.LongForm(yamltree.Field(doc.Spec, "rules")) // files may contain short forms of matchers, as in NFD's guide
	if err := doc.CheckFields(); err != nil {
		return nil, err
	}
	if l.embedFiles {
		err = l.embedTemplates(doc)
	}
	return doc, err
}

// read returns the content of a document. The error is fs.ErrNotExist if it does not exist.
func (l *loader) read(at locator) ([]byte, error) {
	if name, ok := at.template(); ok {
		return l.readTemplate(name)
	}
	switch {
	case at == stdin:
		return limited(l.in, "standard input")
	case at.remote():
		return l.fetch(at)
	}
	info, err := os.Stat(string(at))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", at)
	}
	f, err := os.Open(string(at))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limited(f, string(at))
}

func limited(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, compose.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > compose.MaxText {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, compose.MaxText>>20)
	}
	return text, nil
}

func (l *loader) readTemplate(name string) ([]byte, error) {
	if l.deps.Template == nil {
		return nil, fmt.Errorf("cluster:%s: no cluster is configured", name)
	}
	t, err := l.deps.Template(l.ctx, name)
	if err != nil {
		return nil, fmt.Errorf("cluster:%s: %w", name, err)
	}
	if t == nil {
		return nil, fmt.Errorf("cluster:%s: %w", name, fs.ErrNotExist)
	}
	object := map[string]any{
		"apiVersion": assayv1alpha1.GroupVersion.String(), "kind": "NodeFeatureRuleTemplate",
		"metadata": map[string]any{"name": t.Name}, "spec": json.RawMessage(compose.Canonical(&t.Spec)),
	}
	return sigsyaml.Marshal(object)
}

// fetch downloads a document. The client verifies certificates.
func (l *loader) fetch(at locator) ([]byte, error) {
	client := http.Client{}
	if l.deps.HTTP != nil {
		client = *l.deps.HTTP
	}
	client.Timeout = fetchTimeout
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" {
			return fmt.Errorf("redirected to %s, which is not https", r.URL.Redacted())
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("redirected more than %d times", maxRedirects)
		}
		return nil
	}
	request, err := http.NewRequestWithContext(l.ctx, http.MethodGet, string(at), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return limited(response.Body, string(at))
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("%s: %s: %w", at, response.Status, fs.ErrNotExist)
	}
	return nil, fmt.Errorf("%s: %s", at, response.Status)
}

// templateFiles calls visit for each template file that a rule of the document refers to. Its arguments are the rule, the index of
// the field in the rule, the field for the content, and the name of the file.
func templateFiles(doc *compose.YAML, visit func(rule *yaml.Node, at int, field string, file *yaml.Node) error) error {
	rules := yamltree.Field(doc.Spec, "rules")
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil
	}
	for _, rule := range rules.Content {
		if rule.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i < len(rule.Content); i += 2 {
			field := map[string]string{"labelsTemplateFrom": "labelsTemplate", "varsTemplateFrom": "varsTemplate"}[rule.Content[i].Value]
			if field == "" || rule.Content[i+1].Kind != yaml.MappingNode {
				continue
			}
			if file := yamltree.Field(rule.Content[i+1], "file"); file != nil {
				if err := visit(rule, i, field, file); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// embedTemplates replaces references to template files by their content.
func (l *loader) embedTemplates(doc *compose.YAML) error {
	return templateFiles(doc, func(rule *yaml.Node, at int, field string, file *yaml.Node) error {
		where := fmt.Sprintf("%s:%d: %s.file", doc.ID, file.Line, rule.Content[at].Value)
		if yamltree.Field(rule, field) != nil {
			return fmt.Errorf("%s: the rule has %s already", where, field)
		}
		if len(rule.Content[at+1].Content) > 2 {
			return fmt.Errorf("%s: the template is read from one place only", where)
		}
		from, err := locator(doc.ID).resolve(file.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if _, isTemplate := from.template(); isTemplate {
			return fmt.Errorf("%s: want a file, not a template of the cluster", where)
		}
		text, err := l.read(from)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		rule.Content[at].Value = field
		node := &yaml.Node{Line: file.Line, Column: file.Column, LineComment: rule.Content[at+1].LineComment}
		node.SetString(string(text))
		node.Style = yaml.LiteralStyle
		rule.Content[at+1] = node
		return nil
	})
}
