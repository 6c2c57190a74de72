{{/*
The components with metrics, as a YAML list with the names of their ports. Scraping the extender requires a client certificate, as
for schedulers.
*/}}
{{- define "assay.monitored" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if include "assay.enabled" .Values.worker }}
- {name: worker, port: http}
{{- end }}
{{- if include "assay.enabled" (include "assay.topology" . | fromYaml) }}
- {name: topology, port: http}
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

{{/* Endpoint of a component. Parameters: root and an entry of that list. */}}
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
