package chart

import (
	"strings"
	"testing"
)

// TestCommonValues sets values that charts of other projects have too, and reads what they change.
func TestCommonValues(t *testing.T) {
	const grace, strategy = "terminationGracePeriodSeconds: 7", "strategy:\n    type: Recreate"
	values := set(t, `
log: {level: debug, format: json}
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-map"}}
- |
  apiVersion: v1
  kind: Secret
  metadata: {name: "{{ .Release.Name }}-secret"}
webhook: {timeoutSeconds: 5, namespaceSelector: {matchLabels: {team: a}}, strategy: {type: Recreate}, terminationGracePeriodSeconds: 7}
controller: {strategy: {type: Recreate}, terminationGracePeriodSeconds: 7}
worker: {terminationGracePeriodSeconds: 7}
prometheus: {secure: {enabled: true, pprof: true}}
`)
	files := mustRender(t, values)
	for file, wants := range map[string][]string{
		"webhook/deployment.yaml":    {grace, strategy, "--webhook-timeout=5", `--webhook-namespaces={\"matchLabels\":{\"team\":\"a\"}}`, "--v=1", "--log-format=json", "--pprof"},
		"controller/deployment.yaml": {grace, strategy, "--v=1", "--log-format=json", "--pprof"},
		"worker/daemonset.yaml":      {grace, "-log-level=debug", "-log-format=json"},
		"extraobjects.yaml":          {"name: 'assay-map'", `name: "assay-secret"`},
	} {
		text := ""
		for name, rendered := range files {
			if strings.HasSuffix(name, "/templates/"+file) {
				text = rendered
			}
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s", file, want)
			}
		}
	}
	given := mustRender(t, set(t, `
scheduling: {enabled: true}
webhook: {timeoutSeconds: 5, namespaceSelector: {matchLabels: {team: a}}, certManager: {enabled: true}}
`))
	for name, rendered := range given {
		if !strings.HasSuffix(name, "/webhook/configuration.yaml") {
			continue
		}
		if n := strings.Count(rendered, "team: a"); n < 3 {
			t.Errorf("%d webhooks select the namespaces", n)
		}
		if strings.Contains(rendered, "timeoutSeconds: 2\n") || !strings.Contains(rendered, "timeoutSeconds: 5\n") {
			t.Error("a webhook has another timeout than 5")
		}
	}
}
