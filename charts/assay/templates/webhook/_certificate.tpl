{{/* The Secret of a certificate that somebody else renews; nothing if the webhook makes its own. */}}
{{- define "assay.givenCertificate" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{- .Values.webhook.certificateSecret | default (printf "%s-webhook-cert" (include "assay.fullname" .)) -}}
{{- else -}}
{{- .Values.webhook.certificateSecret -}}
{{- end -}}
{{- end -}}
