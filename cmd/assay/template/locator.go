package template

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// locator is the absolute location of a document: an absolute path, https://…, cluster:NAME, or - for standard input.
type locator string

const stdin locator = "-"

const (
	clusterScheme = "cluster:"
	httpsScheme   = "https://"
)

var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*):`)

func (l locator) remote() bool { return strings.HasPrefix(string(l), httpsScheme) }

// template returns the name of the template if l refers to a template in the cluster.
func (l locator) template() (string, bool) { return strings.CutPrefix(string(l), clusterScheme) }

// here is the base of relative locators on standard input and in arguments: a file in the current directory.
func here() (locator, error) {
	dir, err := os.Getwd()
	return locator(filepath.Join(dir, "-")), err
}

// argumentLocator parses a locator from the command line. Unlike locators in documents, it may contain "..", because the user typed
// it.
func argumentLocator(arg string) (locator, error) {
	switch {
	case arg == string(stdin):
		return stdin, nil
	case scheme.MatchString(arg):
		base, err := here()
		if err != nil {
			return "", err
		}
		return base.resolve(arg)
	case arg == "":
		return "", fmt.Errorf("an empty locator")
	}
	abs, err := filepath.Abs(arg)
	return locator(abs), err
}

// resolve parses a locator in the document at l.
func (l locator) resolve(text string) (locator, error) {
	if err := harmless(text); err != nil {
		return "", fmt.Errorf("locator %q: %w", text, err)
	}
	if m := scheme.FindStringSubmatch(text); m != nil {
		return l.withScheme(strings.ToLower(m[1]), text)
	}
	switch _, isTemplate := l.template(); {
	case text == string(stdin):
		return "", fmt.Errorf("locator -: a document cannot be based on standard input")
	case path.IsAbs(text) && l.remote():
		return "", fmt.Errorf("locator %q: a document from another machine cannot name files of this one", text)
	case path.IsAbs(text):
		return locator(path.Clean(text)), nil
	case isTemplate:
		return "", fmt.Errorf("locator %q: a template in the cluster has no files beside it; name other templates", text)
	case l.remote():
		base, err := url.Parse(string(l))
		if err != nil {
			return "", err
		}
		base.RawQuery, base.Fragment, base.RawPath = "", "", ""
		base.Path = path.Join(path.Dir("/"+strings.TrimPrefix(base.Path, "/")), text)
		return locator(base.String()), nil
	case l == stdin:
		base, err := here()
		if err != nil {
			return "", err
		}
		return base.resolve(text)
	}
	return locator(path.Join(path.Dir(string(l)), text)), nil
}

// withScheme parses a locator with a scheme.
func (l locator) withScheme(name, text string) (locator, error) {
	switch name {
	case "https":
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return "", fmt.Errorf("locator %q: want https://HOST/PATH", text)
		}
		u.Scheme, u.Fragment = "https", ""
		return locator(u.String()), nil
	case "file":
		if l.remote() {
			return "", fmt.Errorf("locator %q: a document from another machine cannot name files of this one", text)
		}
		u, err := url.Parse(text)
		if err != nil || u.Host != "" && u.Host != "localhost" || !path.IsAbs(u.Path) {
			return "", fmt.Errorf("locator %q: want file:///PATH", text)
		}
		if err := harmless(u.Path); err != nil {
			return "", fmt.Errorf("locator %q: %w", text, err)
		}
		return locator(path.Clean(u.Path)), nil
	case "cluster":
		template := text[len(clusterScheme):]
		if bad := validation.IsDNS1123Subdomain(template); len(bad) > 0 {
			return "", fmt.Errorf("locator %q: %s", text, bad[0])
		}
		return locator(clusterScheme + template), nil
	case "http":
		return "", fmt.Errorf("locator %q: http is not allowed; use https", text)
	}
	return "", fmt.Errorf("locator %q: unknown scheme, want a file, file://, https:// or cluster:NAME", text)
}

// harmless rejects locators that could escape the directory of a document, in any spelling.
func harmless(text string) error {
	plain, err := url.PathUnescape(text)
	if err != nil {
		plain = text
	}
	switch {
	case text == "":
		return fmt.Errorf("it is empty")
	case strings.ContainsAny(plain, "\x00\n\r"):
		return fmt.Errorf("control characters are not allowed")
	case strings.Contains(plain, `\`):
		return fmt.Errorf("backslashes are not allowed; separate with /")
	}
	plain, _, _ = strings.Cut(plain, "?")
	for part := range strings.SplitSeq(plain, "/") {
		if part == ".." {
			return fmt.Errorf(".. is not allowed; name the file from the root, or move it below the document")
		}
	}
	return nil
}
