{{/* Names and labels that all parts share. */}}

{{- define "assay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "assay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "assay.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "assay.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/*
The Lease of the second scheduler. It is the same whatever the release is called: by it `assay doctor` sees whether one runs.
*/}}
{{- define "assay.schedulerLease" -}}assay-scheduler{{- end -}}

{{/* What selects the pods of a part; it never changes, since selectors cannot. */}}
{{- define "assay.selector" -}}
app.kubernetes.io/name: {{ include "assay.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "assay.labels" -}}
{{ include "assay.selector" . }}
app.kubernetes.io/part-of: assay
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* metadata of an object in the namespace: call with root, component and, if it differs, name. */}}
{{- define "assay.metadata" -}}
name: {{ default (printf "%s-%s" (include "assay.fullname" .root) .component) .name | quote }}
namespace: {{ include "assay.namespace" .root | quote }}
labels:
  {{- include "assay.labels" . | nindent 2 }}
{{- end -}}

{{/* metadata of an object of the cluster. */}}
{{- define "assay.clusterMetadata" -}}
name: {{ default (printf "%s-%s" (include "assay.fullname" .root) .component) .name | quote }}
labels:
  {{- include "assay.labels" . | nindent 2 }}
{{- end -}}

{{/* The ServiceAccount of a part: call with root, component and values. */}}
{{- define "assay.serviceAccountName" -}}
{{- if .values.serviceAccount.create -}}
{{- default (printf "%s-%s" (include "assay.fullname" .root) .component) .values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Who the release is to RBAC: a rule for a cluster-scoped object that other releases may have too. */}}
{{- define "assay.subject" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "assay.serviceAccountName" . | quote }}
    namespace: {{ include "assay.namespace" .root | quote }}
{{- end -}}
