package compose

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unflow converts maps and lists in braces and brackets to blocks if they contain comments, because the encoder would write them in
// a form that YAML parsers reject. It reports whether n contains a comment. A comment after a closing brace moves to owner, which
// is the key of n or n itself.
func unflow(n, owner *yaml.Node) bool {
	inside := false
	for i, c := range n.Content {
		above := c
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			above = n.Content[i-1]
		}
		inside = unflow(c, above) || inside
	}
	if inside && n.Style&yaml.FlowStyle != 0 {
		n.Style &^= yaml.FlowStyle
		owner.HeadComment, n.LineComment = joinComments(owner.HeadComment, n.LineComment), ""
	}
	return inside || n.HeadComment != "" || n.LineComment != "" || n.FootComment != ""
}

// joinComments returns all comments, equal ones once.
func joinComments(list ...string) string {
	return strings.Join(slices.Compact(slices.DeleteFunc(list, func(s string) bool { return s == "" })), "\n")
}

// fillDocumentComments adds to the document dst the comments around fields of src.
func fillDocumentComments(dst, src *yaml.Node) {
	if dst.Kind != src.Kind {
		return
	}
	fillComments(dst, src)
	if dst.Kind == yaml.DocumentNode {
		fillDocumentComments(dst.Content[0], src.Content[0])
		return
	}
	for i := 0; dst.Kind == yaml.MappingNode && i < len(dst.Content); i += 2 {
		if at, _ := lookup(src, dst.Content[i].Value); at >= 0 {
			fillComments(dst.Content[i], src.Content[at])
		}
	}
}

// fillComments adds to dst the comments of src, which has a lower precedence: those above a field and below it to those of dst, and
// the one on its line if dst has none.
func fillComments(dst, src *yaml.Node) {
	dst.HeadComment = joinComments(src.HeadComment, dst.HeadComment)
	dst.LineComment = cmp.Or(dst.LineComment, src.LineComment)
	dst.FootComment = joinComments(dst.FootComment, src.FootComment)
}
