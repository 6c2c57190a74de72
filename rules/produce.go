package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// produce produces the outputs of a matching rule. On an error the rule has no outputs.
func (e *evaluation) produce(r *rule) error {
	if r.loop == nil {
		return e.produceOnce(r)
	}
	matched := false
	err := r.loop.Each(e, func(item expr.Value) error {
		e.item = item
		holds, err := e.conditionsHold(r)
		if err != nil || !holds {
			return err
		}
		matched = true
		if !e.Spend(stepsPerOutput * (r.assignments() + len(r.taints) + len(r.nodeConditions))) { // the only cost of literal outputs
			return expr.ErrBudget
		}
		return e.produceOnce(r)
	})
	if !matched && err == nil {
		e.result = notMatched
	}
	return err
}

// produceOnce produces the outputs once: variables first, since other outputs may refer to them.
func (e *evaluation) produceOnce(r *rule) error {
	if err := e.expandTemplate(r, r.varsTemplate, "varsTemplate", e.setVar); err != nil {
		return err
	}
	for i := range r.vars {
		if err := e.variable(&r.vars[i]); err != nil {
			return err
		}
	}
	if err := e.expandTemplate(r, r.labelsTemplate, "labelsTemplate", e.templateLabel); err != nil {
		return err
	}
	for _, list := range [][]assignment{r.labels, r.annotations, r.resources} {
		for i := range list {
			if err := e.assign(&list[i]); err != nil {
				return err
			}
		}
	}
	for i := range r.taints {
		if err := e.taint(&r.taints[i]); err != nil {
			return err
		}
	}
	for i := range r.nodeConditions {
		if err := e.nodeCondition(&r.nodeConditions[i]); err != nil {
			return err
		}
	}
	return e.act(r)
}

// leftOut records an output that is left out because it refers to something that the node does not have, or because its number is too
// large, and reports whether err is such an error.
func (e *evaluation) leftOut(kind keys.Kind, key string, err error) bool {
	var fault *expr.Error
	if !errors.As(err, &fault) || !fault.Missing && !fault.TooLarge {
		return false
	}
	reason := fault.Message
	switch {
	case e.rule.set.sensitive && fault.Missing:
		reason = "it refers to something that this node does not have"
	case e.rule.set.sensitive:
		reason = terse(err)
	}
	e.reject(Rejection{Kind: kind, Key: key, Reason: reason, Missing: fault.Missing})
	return true
}

// reject records an output that is left out, up to MaxRejected.
func (e *evaluation) reject(r Rejection) {
	if len(e.result.rejected) < MaxRejected {
		e.result.rejected = append(e.result.rejected, r)
	}
}

// variable evaluates one variable.
func (e *evaluation) variable(a *assignment) error {
	e.mark()
	name, err := a.key.Format(e)
	if err != nil {
		return e.orLeftOut(keys.Var, a.key.Source(), err)
	}
	value, err := a.value.Eval(e)
	if err == nil && value.Kind() == expr.Masked {
		err = errMasked
	}
	if err != nil {
		return e.orLeftOut(keys.Var, name, err)
	}
	e.setVariable(name, value, value.String(), "vars")
	return nil
}

var errMasked = errors.New("the value is masked, and a masked value may not be written")

func (e *evaluation) orLeftOut(kind keys.Kind, key string, err error) error {
	if e.leftOut(kind, key, err) {
		return nil
	}
	return fmt.Errorf("%s %q: %w", kind, key, err)
}

// setVariable sets a variable for the rest of the rule, for later rules of the object, and for back-references. Other objects read
// its string form.
func (e *evaluation) setVariable(name string, value expr.Value, text, how string) {
	if e.local == nil {
		e.local = map[string]expr.Value{}
	}
	e.local[name] = value
	e.result.outputs = append(e.result.outputs, output{kind: keys.Var, key: name, raw: name, value: text, how: how})
}

// unsetVariable removes a variable for the rest of the rule and for later rules of the object.
func (e *evaluation) unsetVariable(name string) {
	if e.local == nil {
		e.local = map[string]expr.Value{}
	}
	e.local[name] = expr.Value{}
}

func (e *evaluation) setVar(name, value string) {
	e.setVariable(name, expr.OfText(value), value, "varsTemplate")
}

// templateLabel adds a label from a template.
func (e *evaluation) templateLabel(name, value string) {
	a := e.rule.templateReferences[value]
	if a == nil {
		e.write(keys.Label, name, value, "labelsTemplate")
		return
	}
	if err := e.give(a, name, "labelsTemplate"); err != nil {
		e.reject(Rejection{Kind: keys.Label, Key: name, Reason: err.Error()})
	}
}

// assign evaluates one label, annotation or resource.
func (e *evaluation) assign(a *assignment) error {
	e.mark()
	how := howOf[a.kind]
	if a.checked || a.void {
		e.result.outputs = append(e.result.outputs, a.output())
		return nil
	}
	name, err := a.key.Format(e)
	if err != nil {
		return e.orLeftOut(a.kind, a.key.Source(), err)
	}
	return e.give(a, name, how)
}

// give evaluates the value of an assignment.
func (e *evaluation) give(a *assignment, name, how string) error {
	value, err := a.value.Format(e)
	switch {
	case a.late != "" && e.late(a, name, how, value, err):
		return nil
	case err == nil:
		out := output{kind: a.kind, raw: name, value: value, how: how}
		if e.program.opt.Strict {
			out.told = a.reference
		}
		e.put(out)
		return nil
	case e.program.opt.Strict && a.reference != "":
		e.reject(Rejection{Kind: a.kind, Key: name, Reason: err.Error(), Missing: true})
	default:
		if err := e.orLeftOut(a.kind, name, err); err != nil {
			return err
		}
	}
	if a.reference != "" {
		e.void(a.kind, name, how)
	}
	return nil
}

// late produces an output whose value is @rule.matched.NAME. NFD resolves such values after all rules have run; until then other
// rules see the current value of NAME. It reports whether err is such a case.
func (e *evaluation) late(a *assignment, name, how, now string, err error) bool {
	var fault *expr.Error
	if err != nil && !(errors.As(err, &fault) && fault.Missing) {
		return false
	}
	verdict := checkName(e.rule.keys, a.kind, name)
	if !verdict.OK() {
		return false
	}
	out := output{kind: a.kind, op: opLate, key: verdict.Key, raw: name, value: a.late, how: how}
	switch {
	case e.program.opt.Strict:
		out.told = a.reference
	case err == nil:
		if verdict := checkValue(e.rule.keys, a.kind, name, now); verdict.OK() {
			out.told = now
		}
	}
	e.result.outputs = append(e.result.outputs, out)
	return true
}

// void removes a key of earlier rules without setting a value, as NFD does if a value cannot be resolved or written. A value in
// braces that refers to something missing is only skipped.
func (e *evaluation) void(kind keys.Kind, name, how string) {
	if verdict := checkName(e.rule.keys, kind, name); verdict.OK() {
		e.result.outputs = append(e.result.outputs, output{kind: kind, op: opVoid, key: verdict.Key, raw: name, how: how})
	}
}

var howOf = map[keys.Kind]string{keys.Label: "labels", keys.Annotation: "annotations", keys.Resource: "extendedResources"}

// write adds an output, or records why no rule may write it.
func (e *evaluation) write(kind keys.Kind, name, value, how string) {
	e.put(output{kind: kind, raw: name, value: value, how: how})
}

// put is like write. It sets the key of the output.
func (e *evaluation) put(out output) {
	verdict := checkValue(e.rule.keys, out.kind, out.raw, out.value)
	if !verdict.OK() {
		e.reject(Rejection{Kind: out.kind, Key: out.raw, Reason: e.shown(verdict.Message())})
		if verdict.Cause == keys.BadValue {
			e.void(out.kind, out.raw, out.how)
		}
		return
	}
	out.key = verdict.Key
	e.result.outputs = append(e.result.outputs, out)
}

// shown returns a reason that is safe to show: the reason of a sensitive rule could contain a value.
func (e *evaluation) shown(reason string) string {
	if e.rule.set.sensitive {
		return "no rule may write it"
	}
	return reason
}

func (e *evaluation) taint(t *taint) error {
	e.mark()
	key, err := t.key.Format(e)
	if err != nil {
		return e.orLeftOut(keys.Taint, t.key.Source(), err)
	}
	value, err := t.value.Format(e)
	if err != nil {
		return e.orLeftOut(keys.Taint, key, err)
	}
	e.addTaint(corev1.Taint{Key: key, Value: value, Effect: t.effect})
	return nil
}

func (e *evaluation) nodeCondition(n *nodeCondition) error {
	e.mark()
	kind, err := n.kind.Format(e)
	if err != nil {
		return e.orLeftOut(keys.Condition, n.kind.Source(), err)
	}
	var said [3]string
	for i, part := range n.parts() {
		if said[i], err = part.Format(e); err != nil {
			return e.orLeftOut(keys.Condition, kind, err)
		}
	}
	e.write(keys.Condition, kind, keys.FormatCondition(said[0], said[1], said[2]), howConditions)
	return nil
}

// howConditions is the field that conditions of the Node come from.
const howConditions = "nodeConditions"

func (e *evaluation) addTaint(t corev1.Taint) {
	if verdict := e.rule.keys.Taint(t); !verdict.OK() {
		e.reject(Rejection{Kind: keys.Taint, Key: t.Key, Reason: e.shown(verdict.Message())})
		return
	}
	if len(e.result.taints) == MaxTaints {
		e.reject(Rejection{Kind: keys.Taint, Key: t.Key, Reason: fmt.Sprintf("a rule may give a node %d taints at most", MaxTaints)})
		return
	}
	e.result.taints = append(e.result.taints, t)
	if e.sight != nil {
		e.sight.taints[t.Key] = e.sight.now
	}
}

// expandTemplate runs a template once on the elements of each matcher and merges the results; later ones win.
func (e *evaluation) expandTemplate(r *rule, t *tmpl.Template, field string, take func(name, value string)) error {
	if t == nil {
		return nil
	}
	e.mark()
	e.markTemplate(e.templateRuns(r))
	var all map[string]string
	for _, data := range e.templateRuns(r) {
		data, err := e.unmasked(data)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		values, err := t.ExpandWithin(&e.templates, data, templateEnv{e})
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if all == nil {
			all = values
			continue
		}
		maps.Copy(all, values)
	}
	e.result.outputs = slices.Grow(e.result.outputs, len(all)+r.assignments())
	names := facts.SortedKeys(all)
	slices.SortStableFunc(names, bareFirst)
	for _, name := range names {
		take(name, all[name])
	}
	return nil
}

// templateRuns returns the lists of elements for which a template is expanded. A rule with only conditions has one run without
// elements.
func (e *evaluation) templateRuns(r *rule) [][]match.FeatureElements {
	if len(e.runs) == 0 && len(r.conditions) > 0 {
		return [][]match.FeatureElements{nil}
	}
	return e.runs
}

// unmasked returns the input of a template. It fails if an element that matched is masked. Instances match as a whole, so their
// masked attributes are removed instead.
func (e *evaluation) unmasked(data []match.FeatureElements) ([]match.FeatureElements, error) {
	mask := &e.program.opt.Mask
	if !mask.applies(e.rule.set.sensitive) {
		return data, nil
	}
	out := slices.Clone(data)
	for i, f := range data {
		for _, el := range f.Elements {
			if el.HasValue && mask.masks(el.Name) {
				return nil, fmt.Errorf("%s/%s: %w", f.Feature, el.Name, errMasked)
			}
		}
		out[i].Elements = mask.instances(f.Elements)
	}
	return out, nil
}
