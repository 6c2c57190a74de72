{{/* What the extender of a scheduler has in common, wherever it runs. */}}

{{/* The Secret with the certificate that it serves with, and the authority of those who may ask. */}}
{{- define "assay.extenderCertificate" -}}
{{- $e := .Values.extender -}}
{{- if $e.certManager.enabled -}}
{{- $e.certificateSecret | default (printf "%s-extender-cert" (include "assay.fullname" .)) -}}
{{- else -}}
{{- required "extender.enabled needs a certificate: set extender.certManager.enabled, or extender.certificateSecret to a Secret with tls.crt, tls.key and ca.crt" $e.certificateSecret -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate of whoever asks, the same for all; nothing if nobody has said. */}}
{{- define "assay.extenderClient" -}}
{{- $e := .Values.extender -}}
{{- if $e.certManager.enabled -}}
{{- $e.clientSecret | default (printf "%s-extender-client" (include "assay.fullname" .)) -}}
{{- else -}}
{{- $e.clientSecret -}}
{{- end -}}
{{- end -}}

{{/* "true" if the second scheduler asks through the Service, and has no extender beside it. */}}
{{- define "assay.schedulerUsesService" -}}
{{- if .Values.scheduler.useService -}}
{{- if not .Values.extender.enabled }}{{ fail "scheduler.useService needs extender.enabled, which runs the extender behind a Service" }}{{ end -}}
{{- if not (include "assay.extenderClient" .) }}{{ fail "scheduler.useService needs a certificate to show: set extender.certManager.enabled, or extender.clientSecret" }}{{ end -}}
true
{{- end -}}
{{- end -}}

{{/* What it reads, as rules of a ClusterRole. */}}
{{- define "assay.extenderRights" -}}
- apiGroups: [""]
  resources: [nodes, namespaces, pods]
  verbs: [get, list, watch]
- apiGroups: [nfd.k8s-sigs.io]
  resources: [nodefeatures, nodefeaturerules]
  verbs: [get, list, watch]
- apiGroups: [assay.dev]
  resources: [nodefeatureruletemplates, nodefeaturerequests, nodefeatureschedulingpolicies]
  verbs: [get, list, watch]
{{ include "assay.definitionRights" . }}
{{- end -}}
