package action

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// kind describes one kind of action. To add a kind, add it to the list, and its effect to Effects.
type kind struct {
	name   string
	says   string // what it does, for the reference
	params []args.Param
	phases []nfdv1alpha1.Phase // empty for all phases

	attribute bool // has a path, which determines its other arguments
	derives   bool // changes the feature that the argument "feature" names
	stops     bool // prevents all changes to the node
	check     func(a *Action, c *args.Compiler, path *field.Path)
	run       func(a *Action, env expr.Env, to Effects) error
}

// kindList holds all kinds of actions.
var kindList = []*kind{
	{name: "set-attribute", says: "sets a label, an annotation or an extended resource, or replaces the taints of the rule", attribute: true,
		params: []args.Param{path, strictValue}, phases: onNode, check: checkValue, run: setAttribute},
	{name: "extend-attribute", says: "adds a taint, or an element to an annotation that is a comma-separated list", attribute: true,
		params: []args.Param{path, strictValue, unique}, phases: onNode, check: checkValue, run: extendAttribute},
	{name: "del-attribute", says: "removes an output that this rule or an earlier one has set", attribute: true,
		params: []args.Param{path}, phases: onNode, run: deleteAttribute},

	{name: "set-var", says: "sets a variable, which may be a list or a map", params: []args.Param{name, varValue}, check: checkVar, run: setVar},
	{name: "extend-var", says: "adds an element to a variable that is a list", params: []args.Param{name, varValue, unique}, check: checkVar, run: extendVar},
	{name: "unset-var", says: "removes a variable", params: []args.Param{name}, check: checkVar, run: unsetVar},

	{name: "set-feature", says: "sets the value of an element of a derived feature", derives: true,
		params: []args.Param{feature, element, textValue}, phases: derived, check: checkFeature, run: setFeature},
	{name: "extend-feature", says: "adds to an element that is a comma-separated list", derives: true,
		params: []args.Param{feature, element, textValue, unique}, phases: derived, check: checkFeature, run: extendFeature},
	{name: "unset-feature", says: "removes an element, or the whole feature", derives: true,
		params: []args.Param{feature, optionalElement}, phases: derived, check: checkFeature, run: unsetFeature},

	{name: "set-instance-attribute", says: "sets an attribute of the instances that match", derives: true,
		params: []args.Param{feature, matchArg, name, textValue}, phases: derived, check: checkInstance, run: setInstance},
	{name: "extend-instance-attribute", says: "adds to an attribute that is a comma-separated list", derives: true,
		params: []args.Param{feature, matchArg, name, textValue, unique}, phases: derived, check: checkInstance, run: extendInstance},
	{name: "del-instance-attribute", says: "removes an attribute of the instances that match", derives: true,
		params: []args.Param{feature, matchArg, name}, phases: derived, check: checkInstance, run: deleteInstance},

	{name: "fail", says: "prevents all writes to the node", stops: true, params: []args.Param{message}, run: fail},
	{name: "log", says: "writes a log message", params: []args.Param{message, level}, run: log},
	{name: "event", says: "creates an Event for the Node", params: []args.Param{reason, message, eventType}, check: checkReason, run: event},
}

// The phases of actions that only some phases allow. Features are derived before matchers run.
var (
	onNode  = []nfdv1alpha1.Phase{nfdv1alpha1.PhasePreprocess, nfdv1alpha1.PhaseMain}
	derived = []nfdv1alpha1.Phase{nfdv1alpha1.PhaseEarly, nfdv1alpha1.PhasePreprocess}
)

// The arguments. Strings are expanded.
var (
	path            = args.Param{Name: "path", Place: expr.Strict}
	strictValue     = args.Param{Name: "value", Place: expr.Strict}
	varValue        = args.Param{Name: "value", Place: expr.Var}
	textValue       = args.Param{Name: "value", Place: expr.Arg}
	unique          = args.Param{Name: "unique", Flag: true, Optional: true}
	name            = args.Param{Name: "name", Place: expr.Arg}
	feature         = args.Param{Name: "feature", Fixed: true}
	element         = args.Param{Name: "element", Place: expr.Arg}
	optionalElement = args.Param{Name: "element", Place: expr.Arg, Optional: true}
	matchArg        = args.Param{Name: "match", Place: expr.Arg}
	message         = args.Param{Name: "msg", Place: expr.Free}
	level           = args.Param{Name: "level", Fixed: true, Optional: true, OneOf: []string{"debug", "info", "warning", "error"}}
	reason          = args.Param{Name: "reason", Place: expr.Arg}
	eventType       = args.Param{Name: "type", Fixed: true, Optional: true, OneOf: []string{"Normal", "Warning"}}
)

var kinds = func() map[string]*kind {
	byName := make(map[string]*kind, len(kindList))
	for _, k := range kindList {
		byName[k.name] = k
	}
	return byName
}()

var names = func() []string {
	list := make([]string, len(kindList))
	for i, k := range kindList {
		list[i] = k.name
	}
	return list
}()

// Doc describes an action for the reference.
type Doc struct {
	Name, Says string
	Args       []args.Param
	Phases     []nfdv1alpha1.Phase // empty for all phases
	// Derives is set if the action changes features, which other rules then read; Stops if it prevents all changes to
	// the node.
	Derives, Stops bool
}

// Kinds describes every action.
func Kinds() []Doc {
	docs := make([]Doc, len(kindList))
	for i, k := range kindList {
		docs[i] = Doc{Name: k.name, Says: k.says, Args: k.params, Phases: k.phases, Derives: k.derives, Stops: k.stops}
	}
	return docs
}

func checkVar(a *Action, c *args.Compiler, path *field.Path) {
	if v := a.arg("name"); v.IsConstant() && v.Fixed("") == "" {
		c.Refuse(path.Child("name"), "", "a variable needs a name")
	}
}

func setVar(a *Action, env expr.Env, to Effects) error {
	name, value, err := a.variable(env)
	if err != nil {
		return err
	}
	return to.SetVar(name, value)
}

func extendVar(a *Action, env expr.Env, to Effects) error {
	name, value, err := a.variable(env)
	if err != nil {
		return err
	}
	return to.ExtendVar(name, value, a.arg("unique").Flag())
}

func (a *Action) variable(env expr.Env) (string, expr.Value, error) {
	texts, err := a.texts(env, "name")
	if err != nil {
		return "", expr.Value{}, err
	}
	if texts[0] == "" {
		return "", expr.Value{}, errNoName
	}
	value, err := a.arg("value").Eval(env)
	if err != nil {
		return "", expr.Value{}, fmt.Errorf("value: %w", err)
	}
	return texts[0], value, nil
}

func unsetVar(a *Action, env expr.Env, to Effects) error {
	texts, err := a.texts(env, "name")
	if err != nil {
		return err
	}
	return to.UnsetVar(texts[0])
}

// checkFeature rejects names that matchers cannot find, and reserved names.
func checkFeature(a *Action, c *args.Compiler, path *field.Path) {
	name := a.arg("feature").Fixed("")
	domain, rest, _ := strings.Cut(name, ".")
	switch {
	case domain == "" || rest == "":
		c.Refuse(path.Child("feature"), name, "a feature is named DOMAIN.FEATURE, such as site.derived")
	case name != strings.ToLower(name):
		c.Refuse(path.Child("feature"), name, "matchers look for features in lower case: write %s", strings.ToLower(name))
	case name == nfdv1alpha1.RuleMatchedFeature:
		c.Refuse(path.Child("feature"), name, "rules fill this feature with their labels and vars: use set-var")
	}
}

func setFeature(a *Action, env expr.Env, to Effects) error {
	texts, err := a.element(env, "element", "value")
	if err != nil {
		return err
	}
	return to.SetFeature(a.Derives(), texts[0], texts[1])
}

func extendFeature(a *Action, env expr.Env, to Effects) error {
	texts, err := a.element(env, "element", "value")
	if err != nil {
		return err
	}
	return to.ExtendFeature(a.Derives(), texts[0], texts[1], a.arg("unique").Flag())
}

func unsetFeature(a *Action, env expr.Env, to Effects) error {
	texts, err := a.texts(env, "element")
	if err != nil {
		return err
	}
	return to.UnsetFeature(a.Derives(), texts[0])
}

// element evaluates strings; the first one is a name.
func (a *Action) element(env expr.Env, names ...string) ([]string, error) {
	texts, err := a.texts(env, names...)
	if err == nil && texts[0] == "" {
		err = errNoName
	}
	return texts, err
}

func checkInstance(a *Action, c *args.Compiler, path *field.Path) {
	checkFeature(a, c, path)
	if !a.arg("match").IsMap() {
		c.Refuse(path.Child("match"), "…", "match is a map of attributes, such as {name: eth0}")
	}
}

func setInstance(a *Action, env expr.Env, to Effects) error {
	match, texts, err := a.instance(env, "name", "value")
	if err != nil {
		return err
	}
	return to.SetInstanceAttribute(a.Derives(), match, texts[0], texts[1])
}

func extendInstance(a *Action, env expr.Env, to Effects) error {
	match, texts, err := a.instance(env, "name", "value")
	if err != nil {
		return err
	}
	return to.ExtendInstanceAttribute(a.Derives(), match, texts[0], texts[1], a.arg("unique").Flag())
}

func deleteInstance(a *Action, env expr.Env, to Effects) error {
	match, texts, err := a.instance(env, "name")
	if err != nil {
		return err
	}
	return to.DeleteInstanceAttribute(a.Derives(), match, texts[0])
}

// instance evaluates the attributes that select the instances, and strings; the first string is a name.
func (a *Action) instance(env expr.Env, names ...string) (map[string]string, []string, error) {
	v, err := a.arg("match").Eval(env)
	if err != nil {
		return nil, nil, fmt.Errorf("match: %w", err)
	}
	m := v.Map()
	if m == nil || m.Len() == 0 {
		return nil, nil, fmt.Errorf("match: %s is not a map of attributes", v.Kind())
	}
	match := make(map[string]string, m.Len())
	for _, name := range m.Keys() {
		item, _ := m.Get(name)
		text, ok := item.Text()
		if !ok {
			return nil, nil, fmt.Errorf("match: %s is %s, not text", name, item.Kind())
		}
		match[name] = text
	}
	texts, err := a.element(env, names...)
	return match, texts, err
}

func fail(a *Action, env expr.Env, to Effects) error {
	text, err := a.message(env, "msg")
	if err != nil {
		return err
	}
	return to.Fail(text)
}

func log(a *Action, env expr.Env, to Effects) error {
	text, err := a.message(env, "msg")
	if err != nil {
		return err
	}
	return to.Log(a.arg("level").Fixed("info"), text)
}

// maxReason is the maximum length of the reason of an Event (events.k8s.io/v1, Event.reason).
const maxReason = 128

func checkReason(a *Action, c *args.Compiler, path *field.Path) {
	if v := a.arg("reason"); v.IsConstant() && !isReason(v.Fixed("")) {
		c.Refuse(path.Child("reason"), v.Fixed(""), "a reason is a word such as NewGPU, of at most %d letters and digits", maxReason)
	}
}

func isReason(s string) bool {
	return s != "" && len(s) <= maxReason && !strings.ContainsFunc(s, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	})
}

func event(a *Action, env expr.Env, to Effects) error {
	texts, err := a.texts(env, "reason")
	if err != nil {
		return err
	}
	if !isReason(texts[0]) {
		return fmt.Errorf("invalid reason %q: use a word in CamelCase such as DriverFailed", texts[0])
	}
	text, err := a.message(env, "msg")
	if err != nil {
		return err
	}
	return to.Event(texts[0], text, a.arg("type").Fixed("Normal"))
}
