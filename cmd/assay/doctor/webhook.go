package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
)

// rulesHook is the name of the webhook that reviews rules.
const rulesHook = "rules.assay.dev"

// earlyHook is the name of the webhook that reviews rules in mutating admission, before the API server validates the schema.
const earlyHook = "early." + rulesHook

// logs is what to do about a webhook that does not answer.
const logs = "Read the logs of the API server for failed calls of the webhook " + rulesHook

// webhook checks that the API server calls the webhook.
func (e *examination) webhook(ctx context.Context) error {
	const check = "webhook"
	configs, err := e.c.ValidatingWebhooks(ctx)
	if err != nil {
		return err
	}
	deployments := e.part("webhook")
	config, hook := rulesWebhook(configs)
	switch {
	case hook == nil && len(deployments) == 0:
		e.ok(check, "no webhook is installed: errors in rules are reported by conditions alone")
		return nil
	case hook == nil:
		d := deployments[0]
		e.report(check, Error, fmt.Sprintf("no ValidatingWebhookConfiguration has the webhook %s: the API server does not call Deployment %s/%s, "+
			"and errors in rules are accepted without a message", rulesHook, d.Namespace, d.Name),
			fmt.Sprintf("Run helm upgrade, which creates the configuration; the webhook fills it once it answers: kubectl -n %s logs deployment/%s", d.Namespace, d.Name))
		return nil
	}
	trusted := e.authority(ctx, "ValidatingWebhookConfiguration "+config, &hook.ClientConfig, deployments)
	if err := e.early(ctx, deployments); err != nil {
		return err
	}
	refusal, _, err := e.c.DryRunRule(ctx, invalidRule())
	if err != nil {
		return err
	}
	if !trusted && (refusal == nil || denied(refusal)) {
		return nil // already reported
	}
	if refusal != nil && strings.Contains(refusal.Message, `"`+earlyHook+`" denied`) {
		return e.validating(ctx, config)
	}
	e.dryRun(config, refusal)
	return nil
}

// validating checks that the API server calls the webhook in validating admission too, where alone it warns. A rule that the review
// rejects does not get there.
func (e *examination) validating(ctx context.Context, config string) error {
	const check = "webhook"
	refusal, warnings, err := e.c.DryRunRule(ctx, dryRunOf(nfdv1alpha1.Rule{MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "kernel.version"}}}))
	switch {
	case err != nil:
		return err
	case refusal != nil:
		e.dryRun(config, refusal)
	case slices.ContainsFunc(warnings, func(text string) bool { return strings.Contains(text, "spec.rules[0]") }):
		e.ok(check, "the API server calls the webhook, which rejected a dry run of an invalid rule, and warned about one without outputs")
	default:
		e.report(check, Error, fmt.Sprintf("the webhook of ValidatingWebhookConfiguration %s does not answer: a dry run of a rule without outputs "+
			"was accepted without its warning", config), logs)
	}
	return nil
}

// early checks that the API server calls the webhook before it validates the schema.
func (e *examination) early(ctx context.Context, deployments []*appsv1.Deployment) error {
	configs, err := e.c.MutatingWebhooks(ctx)
	if err != nil {
		return err
	}
	for i := range configs {
		for j := range configs[i].Webhooks {
			if hook := &configs[i].Webhooks[j]; hook.Name == earlyHook {
				e.authority(ctx, "MutatingWebhookConfiguration "+configs[i].Name, &hook.ClientConfig, deployments)
				return nil
			}
		}
	}
	e.report("webhook", Warning, fmt.Sprintf("no MutatingWebhookConfiguration has the webhook %s: of an invalid object users may see only the first error "+
		"of the schema", earlyHook), "Run helm upgrade: the installation creates the configuration, and the webhook fills it")
	return nil
}

// selectors checks the webhook that adds labels of requests to node selectors, where the installation uses one.
func (e *examination) selectors(ctx context.Context) error {
	configs, err := e.c.MutatingWebhooks(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(configs, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == serving.Webhook })
	if i < 0 {
		return nil
	}
	name, deployments := "MutatingWebhookConfiguration "+serving.Webhook, e.part("webhook")
	if hooks := configs[i].Webhooks; len(hooks) > 0 {
		e.authority(ctx, name, &hooks[0].ClientConfig, deployments)
		return nil
	}
	fix := "Install the webhook, which fills it: upgrade the release with webhook.enabled=true"
	if len(deployments) > 0 {
		fix = fmt.Sprintf("The webhook fills it once it answers: kubectl -n %s logs deployment/%s", deployments[0].Namespace, deployments[0].Name)
	}
	e.report("scheduling", Error, fmt.Sprintf("%s is empty: pods, DaemonSets and Jobs with the label %s get no node selector, and may be placed on any node",
		name, assayv1alpha1.FeatureRequestLabel), fix)
	return nil
}

func rulesWebhook(configs []admissionregistrationv1.ValidatingWebhookConfiguration) (string, *admissionregistrationv1.ValidatingWebhook) {
	for i := range configs {
		for j := range configs[i].Webhooks {
			if configs[i].Webhooks[j].Name == rulesHook {
				return configs[i].Name, &configs[i].Webhooks[j]
			}
		}
	}
	return "", nil
}

// invalidRule returns a rule that is valid by the schema and that the webhook rejects.
func invalidRule() any {
	return dryRunOf(nfdv1alpha1.Rule{Labels: map[string]string{"assay.dev/doctor": "{this-name-is-not-declared}"}})
}

// dryRunOf returns an object with one rule.
func dryRunOf(rule nfdv1alpha1.Rule) any {
	rule.Name = "assay-doctor"
	return &nfdv1alpha1.NodeFeatureRule{
		TypeMeta:   metav1.TypeMeta{APIVersion: nfdv1alpha1.GroupVersion.String(), Kind: "NodeFeatureRule"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "assay-doctor-"},
		Spec:       nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}},
	}
}

// denied reports whether the webhook has rejected the rule.
func denied(r *cluster.Refusal) bool {
	return strings.Contains(r.Message, `assay.dev" denied the request`)
}

// dryRun reports the response to an invalid rule that was sent as a dry run.
func (e *examination) dryRun(config string, refusal *cluster.Refusal) {
	const check = "webhook"
	switch {
	case refusal == nil:
		e.report(check, Error, fmt.Sprintf("the webhook of ValidatingWebhookConfiguration %s does not answer: a dry run of an invalid rule was accepted", config), logs)
	case denied(refusal):
		e.ok(check, "the API server calls the webhook, which rejected a dry run of an invalid rule")
	case refusal.Code == http.StatusForbidden && strings.Contains(refusal.Message, "cannot create resource"):
		e.report(check, Warning, "cannot check whether the webhook answers: you may not create NodeFeatureRules", "")
	case strings.Contains(refusal.Message, "failed calling webhook"):
		e.report(check, Error, fmt.Sprintf("the webhook of ValidatingWebhookConfiguration %s does not answer: %s", config, refusal.Message), logs)
	default:
		e.report(check, Warning, "cannot check whether the webhook answers: a dry run of an invalid rule was rejected by something else: "+refusal.Message, "")
	}
}

// authority checks the CA bundle of a configuration, and reports whether no problem was found. config is the kind and name of the
// configuration.
func (e *examination) authority(ctx context.Context, config string, hook *admissionregistrationv1.WebhookClientConfig, deployments []*appsv1.Deployment) bool {
	const check = "webhook"
	bundle := hook.CABundle
	restart := "Restart the webhook, which writes the configuration again; with cert-manager, see its Certificate"
	if e.lacking["webhook"] {
		restart = "Give the webhook its rights first: without them it cannot write the configuration"
	}
	if len(bundle) == 0 {
		if hook.URL == nil {
			e.report(check, Error, fmt.Sprintf("%s has no CA bundle: the API server trusts no webhook", config), restart)
		}
		return hook.URL != nil
	}
	authorities := parse(bundle)
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a)
	}
	if len(authorities) == 0 {
		e.report(check, Error, fmt.Sprintf("the CA bundle of %s contains no certificate", config), restart)
		return false
	}
	for _, d := range deployments {
		name := certificateSecret(&d.Spec.Template.Spec)
		secret, err := e.c.Secret(ctx, d.Namespace, name)
		if name == "" || err != nil {
			continue // the dry run tests whether it works
		}
		served := parse(secret.Data[corev1.TLSCertKey])
		if len(served) == 0 {
			e.report(check, Error, fmt.Sprintf("Secret %s/%s contains no certificate for the webhook", d.Namespace, name), restart)
			return false
		}
		between := x509.NewCertPool()
		for _, c := range served[1:] {
			between.AddCert(c)
		}
		options := x509.VerifyOptions{Roots: pool, Intermediates: between, DNSName: host(hook), CurrentTime: e.c.Now()}
		if _, err := served[0].Verify(options); err != nil {
			e.report(check, Error, fmt.Sprintf("the CA bundle of %s does not verify the webhook's certificate in Secret %s/%s: %v",
				config, d.Namespace, name, err), restart)
			return false
		}
	}
	return true
}

// host returns the host name that the API server uses to call a webhook.
func host(hook *admissionregistrationv1.WebhookClientConfig) string {
	if s := hook.Service; s != nil {
		return s.Name + "." + s.Namespace + ".svc"
	}
	if u, err := url.Parse(*hook.URL); err == nil {
		return u.Hostname()
	}
	return ""
}

// certificateSecret returns the name of the Secret with the certificate of the webhook: the one that replicas share, or the mounted
// one.
func certificateSecret(spec *corev1.PodSpec) string {
	for i := range spec.Containers {
		args := spec.Containers[i].Args
		for j, arg := range args {
			flag, name, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !ok && j+1 < len(args) {
				name = args[j+1]
			}
			if flag == "cert-secret" {
				return name
			}
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == "certificate" && v.Secret != nil {
			return v.Secret.SecretName
		}
	}
	return ""
}

// parse returns the certificates in PEM data. It skips blocks of other types.
func parse(text []byte) (out []*x509.Certificate) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
		text = rest
	}
}
