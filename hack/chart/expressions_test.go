package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/assay-project/assay/hack/chart/schemas"
)

// TestExpressionsCompileInEachVersion compiles the CEL expressions of CRDs, policies and webhooks with each version of Kubernetes.
// An API server rejects a CRD with an unknown function, which fails the whole release. New expressions may only use what the
// previous version supports too (KEP-2876), so that a server can be downgraded.
func TestExpressionsCompileInEachVersion(t *testing.T) {
	for _, source := range schemas.Sources {
		server := version.MustParse(source.Version)
		knows := environment.MustBaseEnvSet(version.MajorMinor(server.Major(), server.Minor()-1))
		for _, values := range []string{"scheduling", "everything"} {
			files, err := render(t, load(t), rendering{release: "assay", namespace: "n", kubernetes: source.Version, values: readValues(t, "testdata/"+values+"/values.yaml")})
			if err != nil {
				t.Fatal(err)
			}
			t.Run(source.Version+"/"+values, func(t *testing.T) {
				compiled := 0
				for _, object := range append(objects(t, files), definitions(t)...) {
					for _, e := range expressions(t, object) {
						compiled++
						if err := e.compile(knows); err != nil {
							t.Errorf("%s: %s: %v\n%s", identity(object), e.where, err, e.text)
						}
					}
				}
				if compiled < 30 {
					t.Errorf("there were only %d expressions", compiled)
				}
			})
		}
	}
}

// TestNamesOfRulesDiffer evaluates the CEL rules that compare all names with each other: names must be unique in templates and in
// objects with basedOn only, and the largest object with the longest names must not exceed the cost limit.
func TestNamesOfRulesDiffer(t *testing.T) {
	long := func(n int) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%1024d", i)
		}
		return names
	}
	for name, test := range map[string]struct {
		old, now []string
		refused  bool
	}{
		"Differ":             {now: []string{"a", "b", "c"}},
		"One":                {now: []string{"a"}},
		"None":               {now: []string{}},
		"Equal":              {now: []string{"a", "b", "a"}, refused: true},
		"EqualBefore":        {old: []string{"a", "a"}, now: []string{"a", "b", "a"}},
		"EqualNow":           {old: []string{"a", "b"}, now: []string{"b", "b"}, refused: true},
		"LongestThatDiffer":  {now: long(64)},
		"LongestThatCompare": {old: append(long(63), fmt.Sprintf("%1024d", 0)), now: append(long(63), fmt.Sprintf("%1024d", 62))},
		"MoreThanIsCompared": {now: append(long(255), fmt.Sprintf("%1024d", 0))},
	} {
		t.Run(name, func(t *testing.T) {
			for _, with := range []struct {
				kind           string
				based, compare bool
			}{
				{"NodeFeatureRule", false, false}, {"NodeFeatureRule", true, true},
				{"NodeFeatureRuleTemplate", false, true}, {"NodeFeatureRuleTemplate", true, true},
			} {
				spec := func(names []string) map[string]any {
					var out []any
					for _, name := range names {
						out = append(out, map[string]any{"name": name})
					}
					spec := map[string]any{"rules": out}
					if with.based {
						spec["basedOn"] = []any{map[string]any{"name": "base"}}
					}
					return spec
				}
				var old any = types.OptionalNone
				if test.old != nil {
					old = types.OptionalOf(types.DefaultTypeAdapter.NativeToValue(spec(test.old)))
				}
				rejecting := 0
				for _, result := range compileSpec(t, with.kind) {
					result, _, err := result.Program.Eval(map[string]any{"self": spec(test.now), "oldSelf": old})
					if err != nil {
						t.Fatalf("%+v: %v", with, err)
					}
					if result.Value() != true {
						rejecting++
					}
				}
				want := 0
				if with.compare && test.refused {
					want = 1
				}
				if rejecting != want {
					t.Errorf("%+v: %d rules reject it, want %d", with, rejecting, want)
				}
			}
			if rules := compileSpec(t, "NodeFeatureGroup"); len(rules) > 0 {
				t.Errorf("%d rules compare the names of a group", len(rules))
			}
		})
	}
}

// compileSpec compiles the CEL rules of a kind's spec that concern names.
func compileSpec(t *testing.T, kind string) []cel.CompilationResult {
	t.Helper()
	for _, object := range definitions(t) {
		var crd apiextensionsv1.CustomResourceDefinition
		convert(t, object, &crd)
		if crd.Spec.Names.Kind != kind {
			continue
		}
		spec := structural(t, crd.Spec.Versions[0]).Properties["spec"]
		spec.XValidations = slices.DeleteFunc(spec.XValidations, func(r apiextensionsv1.ValidationRule) bool { return !strings.Contains(r.Rule, "names") })
		results, err := cel.Compile(&spec, model.SchemaDeclType(&spec, false), celconfig.PerCallLimit, environment.MustBaseEnvSet(version.MajorMinor(1, 29)), cel.NewExpressionsEnvLoader())
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

// expression is a CEL expression, and how the API server compiles it.
type expression struct {
	where, text string
	compile     func(*environment.EnvSet) error
}

// expressions returns the CEL expressions in an object.
func expressions(t *testing.T, object map[string]any) []expression {
	t.Helper()
	switch object["kind"] {
	case "CustomResourceDefinition":
		var crd apiextensionsv1.CustomResourceDefinition
		convert(t, object, &crd)
		var out []expression
		for _, v := range crd.Spec.Versions {
			out = append(out, rulesOf(v.Name, structural(t, v), true)...)
		}
		return out
	case "ValidatingAdmissionPolicy":
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		convert(t, object, &policy)
		p := admissionPolicy{variables: policy.Spec.Variables, options: plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}}
		out := p.conditions(policy.Spec.MatchConditions)
		for i, v := range policy.Spec.Validations {
			out = append(out,
				p.expression(fmt.Sprintf("validations[%d]", i), v.Expression, &validating.ValidationCondition{Expression: v.Expression}),
				p.expression(fmt.Sprintf("validations[%d].messageExpression", i), v.MessageExpression, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}))
		}
		return slices.DeleteFunc(out, func(e expression) bool { return e.text == "" })
	case "MutatingAdmissionPolicy":
		var policy admissionregistrationv1.MutatingAdmissionPolicy
		convert(t, object, &policy)
		p := admissionPolicy{variables: policy.Spec.Variables, options: plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}}
		out := p.conditions(policy.Spec.MatchConditions)
		p.options.HasPatchTypes = true
		for i, m := range policy.Spec.Mutations {
			where := fmt.Sprintf("mutations[%d]", i)
			if m.JSONPatch != nil {
				out = append(out, p.expression(where, m.JSONPatch.Expression, &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}))
			} else {
				out = append(out, p.expression(where, m.ApplyConfiguration.Expression, &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}))
			}
		}
		return out
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration // the relevant part is the same
		convert(t, object, &configuration)
		var out []expression
		for _, webhook := range configuration.Webhooks {
			p := admissionPolicy{options: plugincel.OptionalVariableDeclarations{HasAuthorizer: true}}
			out = append(out, p.conditions(webhook.MatchConditions)...)
		}
		return out
	}
	return nil
}

// structural returns the structural schema of a CRD version as in the API server.
func structural(t *testing.T, v apiextensionsv1.CustomResourceDefinitionVersion) *schema.Structural {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := schema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rulesOf returns the CEL rules of a schema and of everything below it.
func rulesOf(path string, s *schema.Structural, root bool) []expression {
	var out []expression
	if len(s.XValidations) > 0 {
		var texts []string
		for _, rule := range s.XValidations {
			texts = append(texts, rule.Rule)
		}
		out = append(out, expression{path, strings.Join(texts, "\n"), func(knows *environment.EnvSet) error {
			results, err := cel.Compile(s, model.SchemaDeclType(s, root), celconfig.PerCallLimit, knows, cel.NewExpressionsEnvLoader())
			if err != nil {
				return err
			}
			for _, result := range results {
				if result.Error != nil {
					return result.Error
				}
				// The computation of the API server, without its exception for lists without limits (apiextensions, validation.go,
				// StaticEstimatedCostLimit).
				if limit := uint64(10_000_000); result.MaxCost > limit {
					return fmt.Errorf("an object may make it cost %d, more than %d", result.MaxCost, limit)
				}
			}
			return nil
		}})
	}
	for name, property := range s.Properties {
		out = append(out, rulesOf(path+"."+name, &property, false)...)
	}
	if s.Items != nil {
		out = append(out, rulesOf(path+"[]", s.Items, false)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		out = append(out, rulesOf(path+"{}", s.AdditionalProperties.Structural, false)...)
	}
	return out
}

// admissionPolicy is the environment that the expressions of a policy share.
type admissionPolicy struct {
	variables []admissionregistrationv1.Variable
	options   plugincel.OptionalVariableDeclarations
}

func (p admissionPolicy) expression(where, text string, accessor plugincel.ExpressionAccessor) expression {
	return expression{where, text, func(knows *environment.EnvSet) error {
		compiler, err := plugincel.NewCompositedCompiler(knows)
		if err != nil {
			return err
		}
		for _, v := range p.variables {
			result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, p.options, environment.NewExpressions)
			if result.Error != nil {
				return fmt.Errorf("variable %s: %w", v.Name, result.Error)
			}
		}
		if result := compiler.CompileCELExpression(accessor, p.options, environment.NewExpressions); result.Error != nil {
			return result.Error
		}
		return nil
	}}
}

func (p admissionPolicy) conditions(list []admissionregistrationv1.MatchCondition) []expression {
	var out []expression
	for i := range list {
		out = append(out, p.expression("matchConditions/"+list[i].Name, list[i].Expression, (*matchconditions.MatchCondition)(&list[i])))
	}
	return out
}
