{{/*
What of the release has metrics: a YAML list of components, with the name of their port. That of the extender is read as schedulers
ask it, with the certificate of those who may.
*/}}
{{- define "assay.monitored" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if include "assay.enabled" .Values.worker }}
- {name: worker, port: http}
{{- end }}
{{- if include "assay.enabled" $c }}
- {name: controller, port: metrics, secure: {{ $.Values.prometheus.secure.enabled }}}
{{- end }}
{{- if .Values.webhook.enabled }}
- {name: webhook, port: metrics, secure: {{ $.Values.prometheus.secure.enabled }}}
{{- end }}
{{- if and .Values.extender.enabled (include "assay.extenderClient" .) }}
- {name: extender, port: https, client: {{ include "assay.extenderClient" . }}}
{{- end }}
{{- end -}}

{{/* How the metrics of a part are read: call with root and a part of that list. */}}
{{- define "assay.endpoint" -}}
- port: {{ .part.port }}
  path: /metrics
  interval: {{ .root.Values.prometheus.scrapeInterval }}
  {{- if .part.secure }}
  {{- include "assay.secureEndpoint" .root | nindent 2 }}
  {{- end }}
  {{- with .part.client }}
  scheme: https
  tlsConfig:
    serverName: {{ include "assay.fullname" $.root }}-extender.{{ include "assay.namespace" $.root }}.svc
    ca: {secret: {name: {{ . }}, key: ca.crt}}
    cert: {secret: {name: {{ . }}, key: tls.crt}}
    keySecret: {name: {{ . }}, key: tls.key}
  {{- end }}
{{- end -}}
