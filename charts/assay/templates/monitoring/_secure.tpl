{{/* Metrics of controller and webhook over TLS, for authorized clients: arguments, mount and volume of a container. */}}

{{- define "assay.metricsArgs" -}}
{{- if .Values.prometheus.secure.enabled }}
- --metrics-secure
{{- if .Values.prometheus.secure.certificateSecret }}
- --metrics-cert-dir=/metrics-certificate
{{- end }}
{{- if .Values.prometheus.secure.pprof }}
- --pprof
{{- end }}
{{- end }}
{{- end -}}

{{- define "assay.metricsMount" -}}
{{- if and .Values.prometheus.secure.enabled .Values.prometheus.secure.certificateSecret }}
- {name: metrics-certificate, mountPath: /metrics-certificate, readOnly: true}
{{- end }}
{{- end -}}

{{- define "assay.metricsVolume" -}}
{{- if and .Values.prometheus.secure.enabled .Values.prometheus.secure.certificateSecret }}
- name: metrics-certificate
  secret:
    secretName: {{ .Values.prometheus.secure.certificateSecret }}
    defaultMode: 0444
{{- end }}
{{- end -}}

{{/* TLS settings of a monitor's endpoint. */}}
{{- define "assay.secureEndpoint" -}}
{{- $secure := .Values.prometheus.secure -}}
scheme: https
tlsConfig:
  {{- with $secure.certificateSecret }}
  serverName: {{ include "assay.fullname" $ }}-metrics.{{ include "assay.namespace" $ }}.svc
  ca: {secret: {name: {{ . }}, key: ca.crt}}
  {{- else }}
  insecureSkipVerify: true
  {{- end }}
{{- if $secure.tokenSecret }}
authorization:
  credentials: {name: {{ $secure.tokenSecret }}, key: token}
{{- else if eq .Values.prometheus.monitor "ServiceMonitor" }}
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- else }}
{{- fail "prometheus.secure needs prometheus.secure.tokenSecret with prometheus.monitor=PodMonitor: only a ServiceMonitor can use the token of Prometheus itself" }}
{{- end }}
{{- end -}}
