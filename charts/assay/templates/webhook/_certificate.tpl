{{/* The Secret of a certificate that another controller renews; empty if the webhook creates its own. */}}
{{- define "assay.givenCertificate" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{- .Values.webhook.certificateSecret | default (printf "%s-webhook-cert" (include "assay.fullname" .)) -}}
{{- else -}}
{{- .Values.webhook.certificateSecret -}}
{{- end -}}
{{- end -}}
