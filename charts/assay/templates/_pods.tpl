{{/* Parts that the pods of all components share. Parameters of each: root, component and values. */}}

{{/* The first half of a pod's spec. */}}
{{- define "assay.podSpec" -}}
serviceAccountName: {{ include "assay.serviceAccountName" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with concat (.root.Values.imagePullSecrets | default list) ((.root.Values.global | default dict).imagePullSecrets | default list) | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $class := .values.priorityClassName | default .root.Values.priorityClassName }}
{{- if and (not $class) .root.Values.priorityClasses.create }}
{{- $class = include "assay.fullname" .root }}
{{- end }}
{{- with $class }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" (eq true .values.hostNetwork)) }}
dnsPolicy: {{ . }}
{{- end }}
{{- if .values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- if kindIs "bool" .values.hostUsers }}
hostUsers: {{ .values.hostUsers }}
{{- end }}
{{- with .values.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ int . }}
{{- end }}
{{- /* OpenShift chooses the user of a pod that mounts nothing of the node. */}}
{{- $fixed := or (has .component (list "worker" "topology")) (not (include "assay.openshift" .root)) }}
{{- with ternary .values.podSecurityContext (omit (.values.podSecurityContext | default dict) "runAsUser" "runAsGroup" "fsGroup") $fixed }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "assay.tolerations" . | fromYamlArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range .values.topologySpreadConstraints }}
  {{- /* Without a selector, a constraint applies to no pods. */}}
  {{- $constraint := dict "labelSelector" (dict "matchLabels" (include "assay.selector" $ | fromYaml)) }}
  {{- range $key, $value := . }}{{ $_ := set $constraint $key $value }}{{ end }}
  - {{- toYaml $constraint | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* "true" if the cluster is OpenShift. */}}
{{- define "assay.openshift" -}}
{{- if kindIs "bool" .Values.openshift.enabled -}}{{- if .Values.openshift.enabled -}}true{{- end -}}
{{- else if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}true{{- end -}}
{{- end -}}

{{/*
The tolerations of a component, as YAML. What runs on every node tolerates all taints by default. Worker and controller always tolerate
the start-up taint, which the controller removes after both have done their work.
*/}}
{{- define "assay.tolerations" -}}
{{- $tolerations := .values.tolerations | default list -}}
{{- if and (has .component (list "worker" "topology")) (not $tolerations) -}}
{{- $tolerations = list (dict "operator" "Exists") -}}
{{- else if has .component (list "worker" "controller") -}}
{{- with include "assay.startupTaint" .root -}}
{{- $tolerations = append $tolerations (dict "key" . "operator" "Exists") -}}
{{- end -}}
{{- end -}}
{{- toYaml $tolerations -}}
{{- end -}}

{{/* The values of ports in the host's network that another component has too, as sentences. */}}
{{- define "assay.hostPortClashes" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $ports := list -}}
{{- if and .Values.worker.hostNetwork (include "assay.enabled" .Values.worker) -}}
{{- $ports = append $ports (dict "name" "worker.port" "port" .Values.worker.port) -}}
{{- end -}}
{{- if and .Values.topology.hostNetwork (include "assay.enabled" .Values.topology) -}}
{{- $ports = append $ports (dict "name" "topology.port" "port" .Values.topology.port) -}}
{{- end -}}
{{- if and $c.hostNetwork (include "assay.enabled" $c) -}}
{{- $ports = concat $ports (list (dict "name" "controller.port" "port" $c.port) (dict "name" "controller.metricsPort" "port" $c.metricsPort)) -}}
{{- end -}}
{{- if and .Values.webhook.hostNetwork .Values.webhook.enabled -}}
{{- range list "port" "healthPort" "metricsPort" -}}{{- $ports = append $ports (dict "name" (printf "webhook.%s" .) "port" (get $.Values.webhook .)) -}}{{- end -}}
{{- end -}}
{{- if and .Values.extender.hostNetwork .Values.extender.enabled -}}
{{- $ports = append $ports (dict "name" "extender.service.targetPort" "port" .Values.extender.service.targetPort) -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $ports -}}
{{- $key := .port | int | toString -}}
{{- if hasKey $seen $key }}
- {{ get $seen $key }} and {{ .name }} are both {{ $key }}
{{- end -}}
{{- $_ := set $seen $key .name -}}
{{- end -}}
{{- end -}}

{{/*
The values of a Job's pod, as YAML: those of the controller, except for those of its container or its replicas. Parameters: root
and, if the pod has its own ServiceAccount, serviceAccount.
*/}}
{{- define "assay.jobValues" -}}
{{- $c := omit (include "assay.controller" .root | fromYaml) "initContainers" "hostNetwork" "topologySpreadConstraints" -}}
{{- with .serviceAccount }}{{ $_ := set $c "serviceAccount" (dict "create" true "name" .) }}{{ end -}}
{{- toYaml $c -}}
{{- end -}}

{{/* The arguments for the logs of a program of assay-manager, as YAML, and of assay-worker. */}}
{{- define "assay.logArgs" -}}
{{- if eq .Values.log.level "debug" }}
- --v=1
{{- end }}
{{- if ne .Values.log.format "text" }}
- --log-format={{ .Values.log.format }}
{{- end }}
{{- end -}}

{{- define "assay.workerLogArgs" -}}
{{- if ne .Values.log.level "info" }}
- -log-level={{ .Values.log.level }}
{{- end }}
{{- if ne .Values.log.format "text" }}
- -log-format={{ .Values.log.format }}
{{- end }}
{{- end -}}

{{/* The strategy of a Deployment. */}}
{{- define "assay.strategy" -}}
{{- with .values.strategy }}
strategy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Affinity of a Deployment's pods: that of the values, or a preference for control plane nodes and different nodes. */}}
{{- define "assay.affinity" -}}
{{- if .values.affinity -}}
{{- toYaml .values.affinity -}}
{{- else -}}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 1
      preference:
        matchExpressions:
          - key: node-role.kubernetes.io/control-plane
            operator: Exists
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "assay.selector" . | nindent 12 }}
{{- end -}}
{{- end -}}

{{/* nodeSelector and affinity of a DaemonSet's values, which select the operating system of the images and leave out nodes that run no
DaemonSets. What the values set wins. As YAML. */}}
{{- define "assay.onEachNode" -}}
{{- $terms := list (dict "matchExpressions" (list
  (dict "key" "eks.amazonaws.com/compute-type" "operator" "NotIn" "values" (list "fargate"))
  (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet")))) -}}
{{- $defaults := dict "nodeSelector" (dict "kubernetes.io/os" "linux")
  "affinity" (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms))) -}}
{{- mergeOverwrite $defaults (pick . "nodeSelector" "affinity" | deepCopy) | toYaml -}}
{{- end -}}

{{/* Volume with the ServiceAccount token. Unlike the automatically mounted one, it explicitly expires after an hour. */}}
{{- define "assay.tokenMount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{- define "assay.tokenVolume" -}}
- name: token
  projected:
    defaultMode: 0444
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end -}}

{{/* Probes of a container. Parameters: values, the name of the port and, if it is not HTTP, its scheme. */}}
{{- define "assay.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  {{- toYaml .values.startupProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  {{- toYaml .values.readinessProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  {{- toYaml .values.livenessProbe | nindent 2 }}
{{- end -}}

{{/* ServiceAccount of a component. */}}
{{- define "assay.serviceAccount" -}}
{{- if or .values.serviceAccount.create (and (eq .component "worker") (include "assay.sharedAccount" .root)) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "assay.metadata" (merge (dict "name" (include "assay.serviceAccountName" .)) .) | nindent 2 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
NetworkPolicy of a component that only allows the listed traffic. Additional parameters: ports, the names of ports that are open
for all clients, and kubelet, whether it reads the kubelet's endpoint. No label selects API servers, hence the two ports on which they
listen.
*/}}
{{- define "assay.networkPolicy" -}}
{{- if .values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "assay.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "assay.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- /* Without rules, ingress is left out: the API server stores no empty list, and would count each apply of one as a change. */}}
  {{- if or .ports .values.networkPolicy.ingress }}
  ingress:
    {{- if .ports }}
    - ports:
        {{- range .ports }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- with .values.networkPolicy.ingress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  egress:
    - ports:
        - {protocol: TCP, port: 443}
        - {protocol: TCP, port: 6443}
        {{- with .apiPort }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
        {{- if .kubelet }}
        - {protocol: TCP, port: 10250}
        {{- end }}
    {{- with .values.networkPolicy.egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* Annotations of an object that exists only while Helm runs a hook. Parameters: the events and the weight. */}}
{{- define "assay.hook" -}}
annotations:
  helm.sh/hook: {{ first . }}
  helm.sh/hook-weight: {{ last . | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
