{{/* Names and labels that all components share. */}}

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

{{/* The Lease of the controller: that of Node Feature Discovery's master, or a separate one for a named instance. */}}
{{- define "assay.controllerLease" -}}
{{- with (include "assay.controller" . | fromYaml).instance }}{{ . }}.{{ end }}nfd-master.nfd.kubernetes.io
{{- end -}}

{{/*
The Lease of the second scheduler. It is independent of the release name, so that `assay doctor` can check whether one is running.
*/}}
{{- define "assay.schedulerLease" -}}assay-scheduler{{- end -}}

{{/* The selector of the pods of a component; it never changes, since selectors are immutable. */}}
{{- define "assay.selector" -}}
app.kubernetes.io/name: {{ include "assay.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Parameters: root, component and, if there are more, labels. They cannot override the selector labels. */}}
{{- define "assay.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $own := dict "app.kubernetes.io/part-of" "assay" "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart -}}
{{- merge (include "assay.selector" . | fromYaml) (.labels | default dict) $own (.root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* Labels of the pods of a component. Parameters: root, component and values. */}}
{{- define "assay.podLabels" -}}
{{- merge (include "assay.selector" . | fromYaml) (.values.labels | default dict) (.values.podLabels | default dict) (.root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* Annotations of the pods of a component, empty if there are none. Parameter: values. */}}
{{- define "assay.podAnnotations" -}}
{{- with merge (dict) (.values.annotations | default dict) (.values.podAnnotations | default dict) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* metadata of a namespaced object. Parameters: root, component and, if it differs, name. */}}
{{- define "assay.metadata" -}}
name: {{ default (printf "%s-%s" (include "assay.fullname" .root) .component) .name | quote }}
namespace: {{ include "assay.namespace" .root | quote }}
labels:
  {{- include "assay.labels" . | nindent 2 }}
{{- end -}}

{{/* metadata of a cluster-scoped object. */}}
{{- define "assay.clusterMetadata" -}}
name: {{ default (printf "%s-%s" (include "assay.fullname" .root) .component) .name | quote }}
labels:
  {{- include "assay.labels" . | nindent 2 }}
{{- end -}}

{{/* The ServiceAccount of a component. Parameters: root, component and values. The worker may use a separate one instead. */}}
{{- define "assay.serviceAccountName" -}}
{{- if and (eq .component "worker") (include "assay.sharedAccount" .root) -}}
{{- printf "%s-worker" (include "assay.fullname" .root) -}}
{{- else -}}
{{- include "assay.accountInValues" . -}}
{{- end -}}
{{- end -}}

{{- define "assay.accountInValues" -}}
{{- if .values.serviceAccount.create -}}
{{- default (printf "%s-%s" (include "assay.fullname" .root) .component) .values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/*
The ServiceAccount that the values assign to the worker and to another component, as GPU and network operators do; empty if there
is none. Every node has a token of the worker's ServiceAccount: if it were shared, it would have the permissions of the
controller, and admission policies could not distinguish the two. Therefore the chart creates a separate ServiceAccount for the
worker, and rejects values that prevent this.
*/}}
{{- define "assay.sharedAccount" -}}
{{- $controller := include "assay.controller" . | fromYaml -}}
{{- $worker := include "assay.accountInValues" (dict "root" . "component" "worker" "values" .Values.worker) -}}
{{- $parts := dict -}}
{{- if include "assay.enabled" $controller }}{{ $_ := set $parts "controller" $controller }}{{ end -}}
{{- range $name := list "webhook" "extender" "scheduler" -}}
{{- if (get $.Values $name).enabled }}{{ $_ := set $parts $name (get $.Values $name) }}{{ end -}}
{{- end -}}
{{- $shared := "" -}}
{{- range $name, $values := $parts -}}
{{- if eq $worker (include "assay.accountInValues" (dict "root" $ "component" $name "values" $values)) -}}
{{- $shared = $worker -}}
{{- $own := printf "%s-worker" (include "assay.fullname" $) -}}
{{- if and (include "assay.enabled" $.Values.worker) (or (eq $worker $own) (not (or $values.serviceAccount.create $.Values.worker.serviceAccount.create))) -}}
{{- fail (printf "worker and %s have the same ServiceAccount %q, so every node could do what the %s may: give the worker another one with worker.serviceAccount.name, or set worker.serviceAccount.create=true" $name $worker $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $shared -}}
{{- end -}}

{{/* "true" if a component is enabled. Parameter: its values. Node Feature Discovery's spelling takes precedence if both are set. */}}
{{- define "assay.enabled" -}}
{{- if kindIs "bool" .enable -}}{{- if .enable -}}true{{- end -}}{{- else if .enabled -}}true{{- end -}}
{{- end -}}

{{/* The name of the release for cluster-scoped RBAC objects, which other releases can have too. */}}
{{- define "assay.subject" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "assay.serviceAccountName" . | quote }}
    namespace: {{ include "assay.namespace" .root | quote }}
{{- end -}}
