package action

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// target is the part of a node that an attribute action changes: the first word of its path.
type target string

const (
	labels      target = "labels"
	annotations target = "annotations"
	resources   target = "extendedResources"
	taints      target = "taints"
)

const pathUsage = "/labels/KEY, /annotations/KEY, /extendedResources/NAME or /taints"

// pathEscapes decodes the escapes of JSON pointers (RFC 6901). The key of a path may be escaped but need not be.
var pathEscapes = strings.NewReplacer("~1", "/", "~0", "~")

// parseTarget returns the target of an action, which is the first word of its path. It is empty for a path that begins with an
// expression; such a path is parsed when its value is known.
func parseTarget(c *args.Compiler, path *field.Path, op string, raw nfdv1alpha1.JSON) (target, bool) {
	written, ok := peekPath(raw)
	if !ok {
		c.Errors = append(c.Errors, field.Required(path, op+" needs text here: "+pathUsage))
		return "", false
	}
	if strings.HasPrefix(written, "{") && c.Mode != expr.Disabled {
		return "", true
	}
	root, key, _ := strings.Cut(strings.TrimPrefix(written, "/"), "/")
	t := target(root)
	switch {
	case !strings.HasPrefix(written, "/") || !slices.Contains([]target{labels, annotations, resources, taints}, t):
		c.Refuse(path, written, "a path is %s", pathUsage)
	case t == taints && strings.TrimPrefix(written, "/") != string(taints):
		c.Refuse(path, written, "/taints takes no key: put the taint into value")
	case t == taints:
		return t, true
	case key == "":
		c.Refuse(path, written, "the path needs a key: /%s/KEY", root)
	case !strings.ContainsAny(key, "{}") && strings.Count(pathEscapes.Replace(key), "/") > 1:
		c.Refuse(path, written, "the path must end after the key: /%s/KEY", root)
	case op == "extend-attribute" && t != annotations:
		c.Refuse(path, written, "%s are not lists: extend annotations or taints", root)
	default:
		return t, true
	}
	return "", false
}

// at returns the action with the target of a path that begins with an expression.
func (a *Action) at(env expr.Env) (*Action, error) {
	texts, err := a.texts(env, "path")
	if err != nil {
		return nil, err
	}
	root, key, _ := strings.Cut(strings.TrimPrefix(texts[0], "/"), "/")
	found := *a
	found.target = target(root)
	switch {
	case !strings.HasPrefix(texts[0], "/") || !slices.Contains([]target{labels, annotations, resources, taints}, found.target),
		(key == "") != (found.target == taints):
		return nil, fmt.Errorf("path: invalid value %q: write %s", clip.Text(texts[0], maxShown), pathUsage)
	case a.kind.name == "extend-attribute" && (found.target == labels || found.target == resources):
		return nil, fmt.Errorf("path: %s are not lists: extend annotations or taints", root)
	}
	return &found, nil
}

// maxShown is the maximum number of bytes of a computed path in a message.
const maxShown = 80

// peekPath returns the path argument before the arguments are compiled, because it determines their types.
func peekPath(raw nfdv1alpha1.JSON) (string, bool) {
	decoded, err := raw.Decode()
	if err != nil {
		return "", false
	}
	var path any
	switch decoded := decoded.(type) {
	case map[string]any:
		path = decoded["path"]
	case []any:
		if len(decoded) > 0 {
			path = decoded[0]
		}
	}
	text, ok := path.(string)
	return text, ok
}

// params returns the parameters of an attribute action on this target.
func (t target) params(params []args.Param) []args.Param {
	params = slices.Clone(params)
	for i := range params {
		if params[i].Name == "value" && t == annotations {
			params[i].Place = expr.Free
		}
	}
	return params
}

// key returns the key of a path.
func (t target) key(path string) string {
	if t == taints {
		return ""
	}
	return pathEscapes.Replace(strings.TrimPrefix(path, "/"+string(t)+"/"))
}

// checkValue rejects invalid values for the target, and resolves @domain.feature.element as the maps of a rule do.
func checkValue(a *Action, c *args.Compiler, path *field.Path) {
	v := a.arg("value")
	if a.target == "" {
		return
	}
	if a.target == taints {
		if v.IsConstant() {
			if _, err := taintsOf(v.Constant()); err != nil {
				c.Refuse(path.Child("value"), v.Constant().String(), "%v", err)
			}
		}
		return
	}
	if !v.IsScalar() {
		c.Refuse(path.Child("value"), "…", "%s are strings; lists and maps are not allowed", a.target)
		return
	}
	text := v.Fixed("")
	if a.target == annotations || !strings.HasPrefix(text, "@") || c.Mode == expr.Disabled {
		return
	}
	if ref, err := expr.ParseRef(text); err == nil && ref.Element != "" && !strings.Contains(text, `"`) {
		a.args[a.index("value")] = c.Text(path.Child("value"), expr.Strict, `{@"`+text[1:]+`"}`)
	}
}

func setAttribute(a *Action, env expr.Env, to Effects) error {
	if a.target == taints {
		list, err := a.taints(env)
		if err != nil {
			return err
		}
		return to.SetTaints(list)
	}
	texts, err := a.texts(env, "path", "value")
	if err != nil {
		return err
	}
	key, value := a.target.key(texts[0]), texts[1]
	switch a.target {
	case labels:
		return to.SetLabel(key, value)
	case annotations:
		return to.SetAnnotation(key, value)
	}
	return to.SetResource(key, value)
}

func extendAttribute(a *Action, env expr.Env, to Effects) error {
	unique := a.arg("unique").Flag()
	if a.target == annotations {
		texts, err := a.texts(env, "path", "value")
		if err != nil {
			return err
		}
		return to.AppendAnnotation(a.target.key(texts[0]), texts[1], unique)
	}
	list, err := a.taints(env)
	for i := 0; i < len(list) && err == nil; i++ {
		err = to.AddTaint(list[i], unique)
	}
	return err
}

func deleteAttribute(a *Action, env expr.Env, to Effects) error {
	if a.target == taints {
		return to.SetTaints(nil)
	}
	texts, err := a.texts(env, "path")
	if err != nil {
		return err
	}
	key := a.target.key(texts[0])
	switch a.target {
	case labels:
		return to.DeleteLabel(key)
	case annotations:
		return to.DeleteAnnotation(key)
	}
	return to.DeleteResource(key)
}

func (a *Action) taints(env expr.Env) ([]corev1.Taint, error) {
	v, err := a.arg("value").Eval(env)
	if err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return taintsOf(v)
}

const taintUsage = "a taint is a map with key, value and effect"

// taintsOf converts a map, or a list of maps, to taints. It does not check whether the taints may be written.
func taintsOf(v expr.Value) ([]corev1.Taint, error) {
	switch v.Kind() {
	case expr.MapKind:
		t, err := taintOf(v.Map())
		return []corev1.Taint{t}, err
	case expr.ListKind:
		list := make([]corev1.Taint, 0, v.List().Len())
		for i := range v.List().Len() {
			item := v.List().At(i)
			if item.Kind() != expr.MapKind {
				return nil, fmt.Errorf("%s in the list: %s", item.Kind(), taintUsage)
			}
			t, err := taintOf(item.Map())
			if err != nil {
				return nil, err
			}
			list = append(list, t)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s: %s", v.Kind(), taintUsage)
}

func taintOf(m expr.Map) (corev1.Taint, error) {
	var t corev1.Taint
	for _, name := range m.Keys() {
		v, _ := m.Get(name)
		text, ok := v.Text()
		if !ok {
			return t, fmt.Errorf("%s is %s: %s", name, v.Kind(), taintUsage)
		}
		switch name {
		case "key":
			t.Key = text
		case "value":
			t.Value = text
		case "effect":
			t.Effect = corev1.TaintEffect(text)
		default:
			return t, fmt.Errorf("a taint has no %s: %s", name, taintUsage)
		}
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		return t, fmt.Errorf("effect %q: NoSchedule, PreferNoSchedule or NoExecute", t.Effect)
	}
	if t.Key == "" {
		return t, fmt.Errorf("no key: %s", taintUsage)
	}
	return t, nil
}

func contains(list, element string) bool {
	for e := range strings.SplitSeq(list, ",") {
		if e == element {
			return true
		}
	}
	return false
}
