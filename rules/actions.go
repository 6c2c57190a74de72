package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/action"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// actions compiles the actions of a rule.
func (c *compiler) actions(path *field.Path, r *rule, list []nfdv1alpha1.Action) {
	a := &args.Compiler{Mode: c.mode, Scope: c.scope, Size: c.size}
	phase := [...]nfdv1alpha1.Phase{nfdv1alpha1.PhaseEarly, nfdv1alpha1.PhasePreprocess, nfdv1alpha1.PhaseMain}[c.phaseNumber]
	for i := range list {
		compiled := action.Compile(a, path.Index(i), phase, list[i])
		if compiled == nil {
			continue
		}
		r.actions = append(r.actions, compiled)
		if name := compiled.Derives(); name != "" {
			r.derives = append(r.derives, strings.ToLower(name))
		}
		c.checkOutput(path.Index(i).Child("args"), compiled, r)
	}
	c.collect(a)
}

// checkOutput adds an error if no rule may write the output's literal name. Actions are an extension of NFD, so Assay drops nothing
// silently.
func (c *compiler) checkOutput(path *field.Path, a *action.Action, r *rule) {
	root, name := a.Output()
	kind, ok := map[string]keys.Kind{"labels": keys.Label, "annotations": keys.Annotation, "extendedResources": keys.Resource}[root]
	if !ok || name == "" {
		return
	}
	if verdict := checkName(r.keys, kind, name); !verdict.OK() {
		c.report.add(field.Invalid(path.Child("path"), "/"+root+"/"+name, verdict.Message()))
	}
}

// act runs the actions of a rule in order.
func (e *evaluation) act(r *rule) error {
	for i, a := range r.actions {
		e.mark()
		to := &effects{e: e, how: fmt.Sprintf("actions[%d]", i)}
		err := a.Run(e, to)
		if err != nil && !e.leftOut(keys.Action, to.how, err) {
			return fmt.Errorf("%s: %w", to.how, err)
		}
	}
	return nil
}

// effects collects the effects of a rule's actions in the rule's result. It implements action.Effects.
type effects struct {
	e   *evaluation
	how string
}

// pay takes the additional steps of an effect from the budget; each action already costs one step.
func (f *effects) pay(steps int) error {
	if steps > 0 && !f.e.Spend(steps) {
		return expr.ErrBudget
	}
	return nil
}

// leaveOut records, once per action, that part of its effect is left out.
func (f *effects) leaveOut(format string, args ...any) {
	r := Rejection{Kind: keys.Action, Key: f.how, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(f.e.result.rejected, r) {
		f.e.reject(r)
	}
}

func (f *effects) output(o output) error {
	o.how = f.how
	f.e.result.outputs = append(f.e.result.outputs, o)
	return nil
}

// SetLabel implements action.Effects.
func (f *effects) SetLabel(name, value string) error {
	f.e.write(keys.Label, name, value, f.how)
	return nil
}

// DeleteLabel implements action.Effects.
func (f *effects) DeleteLabel(name string) error {
	return f.output(output{kind: keys.Label, op: opDelete, key: f.e.rule.keys.Qualify(name), raw: name})
}

// SetAnnotation implements action.Effects.
func (f *effects) SetAnnotation(name, value string) error {
	f.e.write(keys.Annotation, name, value, f.how)
	return nil
}

// AppendAnnotation implements action.Effects.
func (f *effects) AppendAnnotation(name, value string, unique bool) error {
	verdict := f.e.rule.keys.Annotation(name, value)
	if !verdict.OK() {
		f.e.reject(Rejection{Kind: keys.Annotation, Key: name, Reason: f.e.shown(verdict.Message())})
		return nil
	}
	op := opAppend
	if unique {
		op = opAppendUnique
	}
	return f.output(output{kind: keys.Annotation, op: op, key: verdict.Key, raw: name, value: value})
}

// DeleteAnnotation implements action.Effects.
func (f *effects) DeleteAnnotation(name string) error {
	return f.output(output{kind: keys.Annotation, op: opDelete, key: f.e.rule.keys.Qualify(name), raw: name})
}

// SetResource implements action.Effects.
func (f *effects) SetResource(name, quantity string) error {
	f.e.write(keys.Resource, name, quantity, f.how)
	return nil
}

// DeleteResource implements action.Effects.
func (f *effects) DeleteResource(name string) error {
	return f.output(output{kind: keys.Resource, op: opDelete, key: f.e.rule.keys.Qualify(name), raw: name})
}

// SetTaints implements action.Effects.
func (f *effects) SetTaints(list []corev1.Taint) error {
	f.e.result.taints = nil
	for _, t := range list {
		f.e.addTaint(t)
	}
	return nil
}

// AddTaint implements action.Effects.
func (f *effects) AddTaint(t corev1.Taint, unique bool) error {
	if unique {
		for _, old := range f.e.result.taints {
			if old.Key == t.Key && old.Effect == t.Effect {
				return nil
			}
		}
	}
	f.e.addTaint(t)
	return nil
}

// SetVar implements action.Effects.
func (f *effects) SetVar(name string, value expr.Value) error {
	if value.Kind() == expr.Masked {
		return errMasked
	}
	return f.setVariable(name, value)
}

// setVariable also charges for the string form of a variable, which other objects read.
func (f *effects) setVariable(name string, value expr.Value) error {
	text := value.String()
	if err := f.pay(len(text) / bytesPerStep); err != nil {
		return err
	}
	f.e.setVariable(name, value, text, f.how)
	return nil
}

// ExtendVar implements action.Effects.
func (f *effects) ExtendVar(name string, value expr.Value, unique bool) error {
	if value.Kind() == expr.Masked {
		return errMasked
	}
	old, _ := f.e.Var(name)
	extended, ok := action.Extend(old, value, unique)
	if !ok {
		return fmt.Errorf("the variable %s is %s, and only a list can be extended", name, old.Kind())
	}
	if n := extended.Len(); n > expr.MaxItems {
		return fmt.Errorf("the variable %s is extended to more than %d items", name, expr.MaxItems)
	}
	return f.setVariable(name, extended)
}

// UnsetVar implements action.Effects.
func (f *effects) UnsetVar(name string) error {
	f.e.unsetVariable(name)
	return f.output(output{kind: keys.Var, op: opDelete, key: name, raw: name})
}

// Fail implements action.Effects.
func (f *effects) Fail(message string) error {
	f.e.result.failed = &Failure{Message: f.e.withheld(message)}
	return nil
}

// Log implements action.Effects.
func (f *effects) Log(level, message string) error {
	if len(f.e.result.messages) == MaxSaid {
		f.leaveOut("a rule may log %d lines about a node at most", MaxSaid)
		return nil
	}
	f.e.result.messages = append(f.e.result.messages, Message{Level: level, Text: f.e.withheld(message)})
	return nil
}

// Event implements action.Effects.
func (f *effects) Event(reason, message, eventType string) error {
	if len(f.e.result.events) == MaxSaid {
		f.leaveOut("a rule may make %d Events about a node at most", MaxSaid)
		return nil
	}
	f.e.result.events = append(f.e.result.events, Event{Type: eventType, Reason: reason, Message: f.e.withheld(message)})
	return nil
}

// withheld returns a message that is safe to show: the message of a sensitive rule could contain sensitive values.
func (e *evaluation) withheld(message string) string {
	if e.rule.set.sensitive {
		return "the message is hidden because the rule is sensitive"
	}
	return message
}

// maxDerived is the maximum length in bytes of an element that an action extends. It equals the webhook's limit for an element of a
// NodeFeature.
const maxDerived = 4 << 10

// derivation is a change to a feature by a rule of an early phase. It is applied only after the whole rule has succeeded.
type derivation struct {
	feature string
	change  func(*draft) error
}

// derive records a change. Feature names are in lower case, as in the lookup of matchFeatures.
func (f *effects) derive(feature string, change func(*draft) error) error {
	f.e.result.derived = append(f.e.result.derived, derivation{strings.ToLower(feature), change})
	return nil
}

// derive applies the changes of a rule. It copies each feature once for all changes: an action in a loop must not copy thousands of
// elements for each item.
func (e *evaluation) derive(list []derivation) error {
	drafts := map[string]*draft{}
	for _, change := range list {
		d := drafts[change.feature]
		if d == nil {
			d = &draft{old: e.src.Feature(change.feature)}
			drafts[change.feature] = d
		}
		if err := change.change(d); err != nil {
			return fmt.Errorf("%s: %w", change.feature, err)
		}
	}
	for _, name := range facts.SortedKeys(drafts) {
		e.src.Set(name, drafts[name].feature())
	}
	return nil
}

// draft is a feature to which a rule's changes are applied.
type draft struct {
	old *facts.Feature // nil if the feature does not exist or was removed
	// Replacements of the parts of old; nil if unchanged.
	flags      *facts.Flags
	attributes map[string]string
	instances  []map[string]string
}

// feature returns the changed feature, or nil if it does not exist.
func (d *draft) feature() *facts.Feature {
	if d.flags == nil && d.attributes == nil && d.instances == nil {
		return d.old
	}
	next := facts.Feature{}
	if d.old != nil {
		next = *d.old
	}
	if d.flags != nil {
		next.Flags = d.flags
	}
	if d.attributes != nil {
		next.Attributes = facts.NewAttributes(d.attributes)
	}
	if d.instances != nil {
		next.Instances = facts.NewInstances(d.instances)
	}
	return &next
}

// writable returns a copy of the attributes.
func (d *draft) writable() map[string]string {
	if d.attributes == nil {
		d.attributes = map[string]string{}
		if d.old != nil {
			maps.Copy(d.attributes, d.old.Attributes.Map())
		}
	}
	return d.attributes
}

// unset removes an element if it exists.
func (d *draft) unset(element string) {
	flags := d.flags
	if flags == nil && d.old != nil {
		flags = d.old.Flags
	}
	if flags.Has(element) {
		d.flags = facts.NewFlags(without(flags.Names(), element)...)
	}
	if d.attributes != nil || d.old != nil {
		delete(d.writable(), element)
	}
}

// each calls change for the instances that have all attributes of match. Actions cannot create instances, so there may be none.
func (d *draft) each(match map[string]string, change func(map[string]string) error) error {
	if d.instances == nil && d.old != nil {
		d.instances = d.old.Instances.Select(nil)
	}
	for _, instance := range d.instances {
		if !has(instance, match) {
			continue
		}
		if err := change(instance); err != nil {
			return err
		}
	}
	return nil
}

// SetFeature implements action.Effects.
func (f *effects) SetFeature(feature, element, value string) error {
	return f.derive(feature, func(d *draft) error {
		d.writable()[element] = value
		return nil
	})
}

// ExtendFeature implements action.Effects.
func (f *effects) ExtendFeature(feature, element, value string, unique bool) error {
	return f.derive(feature, func(d *draft) error { return extend(d.writable(), element, value, unique) })
}

// extend adds a value to a comma-separated list, up to the maximum length.
func extend(m map[string]string, name, value string, unique bool) error {
	if m[name] = action.Append(m[name], value, unique); len(m[name]) > maxDerived {
		return fmt.Errorf("%s is extended to more than %d bytes", name, maxDerived)
	}
	return nil
}

// UnsetFeature implements action.Effects.
func (f *effects) UnsetFeature(feature, element string) error {
	return f.derive(feature, func(d *draft) error {
		if element == "" {
			*d = draft{}
			return nil
		}
		d.unset(element)
		return nil
	})
}

// SetInstanceAttribute implements action.Effects.
func (f *effects) SetInstanceAttribute(feature string, match map[string]string, name, value string) error {
	return f.changeInstances(feature, match, func(m map[string]string) error {
		m[name] = value
		return nil
	})
}

// ExtendInstanceAttribute implements action.Effects.
func (f *effects) ExtendInstanceAttribute(feature string, match map[string]string, name, value string, unique bool) error {
	return f.changeInstances(feature, match, func(m map[string]string) error { return extend(m, name, value, unique) })
}

// DeleteInstanceAttribute implements action.Effects.
func (f *effects) DeleteInstanceAttribute(feature string, match map[string]string, name string) error {
	return f.changeInstances(feature, match, func(m map[string]string) error {
		delete(m, name)
		return nil
	})
}

// changeInstances applies a change to the instances that match. Each change reads all instances and pays for them. Masked
// attributes cannot select instances, since the change would reveal their values.
func (f *effects) changeInstances(feature string, match map[string]string, change func(map[string]string) error) error {
	for _, name := range facts.SortedKeys(match) {
		if f.e.masks(name) {
			return fmt.Errorf("match: the value of %s is masked, and cannot be compared", name)
		}
	}
	if old := f.e.src.Feature(strings.ToLower(feature)); old != nil {
		if err := f.pay(old.Instances.Len() / instancesPerStep); err != nil {
			return err
		}
	}
	return f.derive(feature, func(d *draft) error { return d.each(match, change) })
}

func has(m, wanted map[string]string) bool {
	for k, v := range wanted {
		if m[k] != v {
			return false
		}
	}
	return true
}

func without(list []string, element string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s != element {
			out = append(out, s)
		}
	}
	return out
}
