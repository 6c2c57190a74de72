{{/* Parts that the extender has as a sidecar and as a Deployment. */}}

{{/* The Secret with the serving certificate, and the CA of client certificates. */}}
{{- define "assay.extenderCertificate" -}}
{{- $e := .Values.extender -}}
{{- if $e.certManager.enabled -}}
{{- $e.certificateSecret | default (printf "%s-extender-cert" (include "assay.fullname" .)) -}}
{{- else -}}
{{- required "extender.enabled needs a certificate: set extender.certManager.enabled, or extender.certificateSecret to a Secret with tls.crt, tls.key and ca.crt" $e.certificateSecret -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the client certificate; empty if none is configured. */}}
{{- define "assay.extenderClient" -}}
{{- $e := .Values.extender -}}
{{- if $e.certManager.enabled -}}
{{- $e.clientSecret | default (printf "%s-extender-client" (include "assay.fullname" .)) -}}
{{- else -}}
{{- $e.clientSecret -}}
{{- end -}}
{{- end -}}

{{/* "true" if the second scheduler uses the Service, and has no sidecar. */}}
{{- define "assay.schedulerUsesService" -}}
{{- if .Values.scheduler.useService -}}
{{- if not .Values.extender.enabled }}{{ fail "scheduler.useService needs extender.enabled, which runs the extender behind a Service" }}{{ end -}}
{{- if not (include "assay.extenderClient" .) }}{{ fail "scheduler.useService needs a certificate to show: set extender.certManager.enabled, or extender.clientSecret" }}{{ end -}}
true
{{- end -}}
{{- end -}}

{{/* Its permissions, as rules of a ClusterRole. */}}
{{- define "assay.extenderRights" -}}
- apiGroups: [""]
  resources: [nodes, namespaces, pods]
  verbs: [get, list, watch]
- apiGroups: [nfd.k8s-sigs.io]
  resources: [nodefeatures, nodefeaturerules]
  verbs: [get, list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceslices, devicetaintrules]
  verbs: [get, list, watch]
- apiGroups: [assay.dev]
  resources: [nodefeatureruletemplates, nodefeaturerequests, nodefeatureschedulingpolicies]
  verbs: [get, list, watch]
{{ include "assay.definitionRights" . }}
{{- end -}}
