{{/* Compatibility with values for Node Feature Discovery's chart. */}}

{{/* "true" if the repository belongs to Node Feature Discovery, whose images contain other programs. */}}
{{- define "assay.foreignImage" -}}
{{- if hasSuffix "node-feature-discovery" (.Values.image.repository | toString | trimSuffix "/") -}}true{{- end -}}
{{- end -}}

{{/* An image. Parameters: root, name and, if the component overrides the image, own. */}}
{{- define "assay.image" -}}
{{- $image := .root.Values.image -}}
{{- if include "assay.foreignImage" .root -}}
{{- $image = dict "repository" "ghcr.io/assay-project" "tag" "" -}}
{{- end -}}
{{- $own := .own | default dict -}}
{{- $repository := $own.repository | default (printf "%s/%s" ($image.repository | trimSuffix "/") .name) -}}
{{- $tag := $own.tag | default $image.tag | default .root.Chart.AppVersion -}}
{{- include "assay.registry" (dict "root" .root "repository" $repository) }}{{ if $own.digest }}@{{ $own.digest }}{{ else }}:{{ $tag }}{{ end -}}
{{- end -}}

{{/* A repository in which global.imageRegistry replaces the registry: the first part, if that is a host name. */}}
{{- define "assay.registry" -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry | default "" | trimSuffix "/" -}}
{{- $host := regexFind "^([^/]+[.:][^/]*|localhost)/" .repository -}}
{{- if $registry -}}{{ $registry }}/{{ trimPrefix $host .repository }}{{- else -}}{{ .repository }}{{- end -}}
{{- end -}}

{{/* The values of the controller, overridden by those of `master`, as YAML. */}}
{{- define "assay.controller" -}}
{{- mustMergeOverwrite (deepCopy .Values.controller) (deepCopy (.Values.master | default dict)) | toYaml -}}
{{- end -}}

{{/*
The configuration of the manager, in the form of Node Feature Discovery's master, as YAML. Controller, webhook and extender use
the same one: the webhook must not accept what the controller rejects.
*/}}
{{- define "assay.managerConfig" -}}
{{- include "assay.checkManagerConfig" . -}}
{{- $config := deepCopy ((include "assay.controller" . | fromYaml).config | default dict) -}}
{{- if .Values.hardened -}}
{{- $own := dict "matchLabels" (dict "kubernetes.io/metadata.name" (include "assay.namespace" .)) -}}
{{- $config = mustMergeOverwrite (dict "restrictions" (dict "nodeFeatureNamespaceSelector" $own)) $config -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "assay.configMount" -}}
- {name: config, mountPath: /etc/kubernetes/node-feature-discovery, readOnly: true}
{{- end -}}

{{- define "assay.configVolume" -}}
- name: config
  configMap:
    name: {{ include "assay.fullname" . }}-manager
{{- end -}}

{{/* Arguments, mount and volume of built-in rules, for programs that evaluate rules. */}}
{{- define "assay.rulesMount" -}}
{{- if (include "assay.controller" . | fromYaml).builtInRules }}
- {name: rules, mountPath: /etc/assay/rules, readOnly: true}
{{- end }}
{{- end -}}

{{- define "assay.rulesVolume" -}}
{{- if (include "assay.controller" . | fromYaml).builtInRules }}
- name: rules
  configMap:
    name: {{ include "assay.fullname" . }}-rules
{{- end }}
{{- end -}}

{{/* Permissions in Assay's own namespace for programs that evaluate rules: to read objects that rules refer to, their last resolved state, and feature sets. */}}
{{- define "assay.referenceRights" -}}
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
- apiGroups: [assay.dev]
  resources: [nodefeaturesets]
  verbs: [get, list, watch]
{{- end -}}

{{/* Permissions in the cluster: to notice that another program has replaced or deleted the definition of a kind. */}}
{{- define "assay.definitionRights" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get, list, watch]
  resourceNames:
    {{- include "assay.definitionNames" . | nindent 4 }}
{{- end -}}

{{/* The names of the definitions, as a YAML list. */}}
{{- define "assay.definitionNames" -}}
- nodebaselines.assay.dev
- nodefeaturegroups.nfd.k8s-sigs.io
- nodefeaturerequests.assay.dev
- nodefeaturerules.nfd.k8s-sigs.io
- nodefeatures.nfd.k8s-sigs.io
- nodefeatureruletemplates.assay.dev
- nodefeatureschedulingpolicies.assay.dev
- nodefeaturesets.assay.dev
- nodeshapes.assay.dev
{{- end -}}

{{/* It is read at startup, so pods restart when it changes. */}}
{{- define "assay.configChecksum" -}}
checksum/config: {{ include "assay.managerConfig" . | sha256sum }}
{{- end -}}

{{/* Arguments that affect the evaluation of rules and override the configuration, as a YAML list, the same for all three. */}}
{{- define "assay.ruleArgs" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $args := list -}}
{{- with $c.instance }}{{ $args = append $args (printf "--instance=%s" .) }}{{ end -}}
{{- with $c.extraLabelNs }}{{ $args = append $args (printf "--extra-label-ns=%s" (join "," .)) }}{{ end -}}
{{- with $c.denyLabelNs }}{{ $args = append $args (printf "--deny-label-ns=%s" (join "," .)) }}{{ end -}}
{{- with $c.labelWhiteList }}{{ $args = append $args (printf "--label-whitelist=%s" .) }}{{ end -}}
{{- if $c.builtInRules }}{{ $args = append $args "--built-in-rules=/etc/assay/rules" }}{{ end -}}
{{- if $c.enableTaints }}{{ $args = append $args "--enable-taints" }}{{ end -}}
{{- if and $c.instance (include "assay.startupTaint" .) }}{{ fail "controller.startupTaint needs the condition FeaturesReady, which a controller with a name (controller.instance) does not write" }}{{ end -}}
{{- with $c.startupTaint }}{{ $args = append $args (printf "--startup-taint=%s" .) }}{{ end -}}
{{- with $c.lossTaint }}{{ $args = append $args (printf "--loss-taint=%s" .) }}{{ end -}}
{{- if and (include "assay.lossTaint" .) (not (include "assay.followsPods" .)) }}{{ fail "controller.lossTaint needs pods that require features; set scheduling.enabled" }}{{ end -}}
{{- if and (include "assay.lossTaint" .) (not ((($c.config | default dict).noExecuteBudget | default dict).every)) }}{{ fail "controller.lossTaint needs a pace; set controller.config.noExecuteBudget.every, for example to 5m" }}{{ end -}}
{{- if $c.nfdStrict }}{{ $args = append $args "--nfd-strict" }}{{ end -}}
{{- range $name, $on := .Values.featureGates | default dict }}{{ $args = append $args (printf "--feature-gates=%s=%t" $name $on) }}{{ end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Further arguments of the controller, as a YAML list. */}}
{{- define "assay.controllerArgs" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $args := list -}}
{{- with $c.failTaint }}{{ $args = append $args (printf "--fail-taint=%s" .) }}{{ end -}}
{{- with $c.failOpenAfter }}{{ $args = append $args (printf "--fail-open-after=%s" .) }}{{ end -}}
{{- if not $c.featuresReady }}{{ $args = append $args "--features-ready=false" }}{{ end -}}
{{- if and .Values.scheduling.enabled (not (hasKey (.Values.featureGates | default dict) "FeatureScheduling")) }}{{ $args = append $args "--feature-gates=FeatureScheduling=true" }}{{ end -}}
{{- with $c.resyncPeriod }}{{ $args = append $args (printf "--resync-period=%s" .) }}{{ end -}}
{{- with $c.nfdApiParallelism }}{{ $args = append $args (printf "--nfd-api-parallelism=%d" (int .)) }}{{ end -}}
{{- with (.Values.gc | default dict).interval }}{{ $args = append $args (printf "--gc-interval=%s" .) }}{{ end -}}
{{- if include "assay.collectsTopologies" . }}{{ $args = append $args "--gc-topologies" }}{{ end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* "true" if rules can create taints, else empty. */}}
{{- define "assay.taints" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if or $c.enableTaints ($c.config | default dict).enableTaints -}}true{{- end -}}
{{- end -}}

{{/* The key of the taint that the controller removes from Nodes that are ready, or nothing. */}}
{{- define "assay.startupTaint" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $c.startupTaint | default ($c.config | default dict).startupTaint | default "" -}}
{{- end -}}

{{/* The taint of nodes that no longer have what their pods require, or nothing. */}}
{{- define "assay.lossTaint" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $c.lossTaint | default ($c.config | default dict).lossTaint | default "" -}}
{{- end -}}

{{/* "true" if the controller changes taints of Nodes for any reason, else empty. */}}
{{- define "assay.writesTaints" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if or (include "assay.taints" .) $c.failTaint ($c.config | default dict).failTaint (include "assay.startupTaint" .) (include "assay.lossTaint" .) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the controller watches pods that require features, else empty. The feature gate takes precedence. */}}
{{- define "assay.followsPods" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $config := ($c.config | default dict).featureGates | default dict -}}
{{- $default := ternary true (get $config "FeatureScheduling") .Values.scheduling.enabled -}}
{{- if dig "FeatureScheduling" $default (.Values.featureGates | default dict) -}}true{{- end -}}
{{- end -}}

{{/* Values that are set and ignored: one line each, for the notes. */}}
{{- define "assay.meaningless" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $config := $c.config | default dict -}}
{{- if include "assay.foreignImage" . }}
- image.repository, image.tag: those images hold Node Feature Discovery's programs; Assay's own are used
{{- end }}
{{- if eq (toString (.Values.featureGates | default dict).NodeFeatureAPI) "false" }}
- featureGates.NodeFeatureAPI: false: features are always published as NodeFeatures
{{- end }}
{{- if .Values.checksumValuesOnly }}
- checksumValuesOnly: configuration that changes is read again without a restart
{{- end }}
{{- with include "assay.setKeys" (list "gc" .Values.gc (include "assay.gcKeys" .)) }}
- {{ . }}: the controller itself removes what Nodes leave behind
{{- end }}
{{- $updater := .Values.topologyUpdater | default dict }}
{{- if not (has (toString ($updater.watchNamespace | default "*")) (list "*" "")) }}
- topologyUpdater.watchNamespace: pods of all namespaces hold resources of the nodes
{{- end }}
{{- if ne .Values.enableNodeFeatureApi nil }}
- enableNodeFeatureApi: features are always published as NodeFeatures
{{- end }}
{{- if (.Values.tls | default dict).enable }}
- tls: there is no connection between worker and master any more
{{- end }}
{{- range $key := list "metricsPort" "healthPort" }}
{{- if hasKey $.Values.worker $key }}
- worker.{{ $key }}: health and metrics have one port, worker.port
{{- end }}
{{- end }}
{{- with include "assay.setKeys" (list "master" .Values.master (include "assay.masterKeys" .)) }}
- {{ . }}
{{- end }}
{{- range $key := list "klog" "autoDefaultNs" "resourceLabels" "featureRulesController" "enableNodeFeatureApi" }}
{{- if hasKey $config $key }}
- master.config.{{ $key }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Keys in values for Node Feature Discovery that are accepted and ignored. The schema accepts any key below master, gc and
topologyUpdater, since versions of that chart differ; the notes warn about keys that are neither here nor among the controller's.
*/}}
{{- define "assay.masterKeys" -}}
crdController featureApi featureRulesController healthPort resourceLabels service
{{- end -}}
{{- define "assay.gcKeys" -}}
affinity annotations deploymentAnnotations dnsPolicy extraArgs extraEnvs hostNetwork hostUsers initContainers labels livenessProbe metricsPort networkPolicy nodeSelector podDisruptionBudget podSecurityContext port priorityClassName rbac readinessProbe replicaCount resources revisionHistoryLimit securityContext serviceAccount startupProbe tolerations
{{- end -}}
{{- define "assay.topologyUpdaterKeys" -}}
config createCRDs daemonsetAnnotations kubeletConfigPath kubeletPodResourcesSockPath kubeletStateDir podSetFingerprint updateInterval updateStrategy watchNamespace
{{- end -}}

{{/* The values of the publishers of NodeResourceTopologies, overridden by those of `topologyUpdater`, as YAML. */}}
{{- define "assay.topology" -}}
{{- $t := deepCopy .Values.topology -}}
{{- $u := deepCopy (.Values.topologyUpdater | default dict) -}}
{{- $own := dict -}}
{{- range $key, $value := $u -}}
{{- if and (not (kindIs "invalid" $value)) (or (hasKey $t $key) (eq $key "enable")) }}{{ $_ := set $own $key $value }}{{ end -}}
{{- end -}}
{{- with ($u.config | default dict).excludeList }}{{ $_ := set $own "excludeList" . }}{{ end -}}
{{- if kindIs "bool" $u.createCRDs }}{{ $_ := set $own "createCRD" $u.createCRDs }}{{ end -}}
{{- if kindIs "bool" $u.podSetFingerprint }}{{ $_ := set $own "fingerprint" $u.podSetFingerprint }}{{ end -}}
{{- with $u.updateInterval }}{{ $_ := set $own "interval" . }}{{ end -}}
{{- with $u.kubeletConfigPath }}{{ $_ := set $own "kubelet" (merge (dict "configPath" .) ($own.kubelet | default dict)) }}{{ end -}}
{{- with $u.kubeletPodResourcesSockPath }}{{ $_ := set $own "kubelet" (merge (dict "podResourcesDir" (dir .) "socket" (base .)) ($own.kubelet | default dict)) }}{{ end -}}
{{- with $u.kubeletStateDir }}{{ $_ := set $own "kubelet" (merge (dict "stateDir" .) ($own.kubelet | default dict)) }}{{ end -}}
{{- mustMergeOverwrite $t $own | toYaml -}}
{{- end -}}

{{/* "true" if the controller deletes NodeResourceTopologies of other publishers, else empty. */}}
{{- define "assay.collectsTopologies" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if or .Values.topology.collectForeign ($c.config | default dict).gcTopologies -}}true{{- end -}}
{{- end -}}

{{/* The given keys that are set, with their path. Parameters: the path, the values and the keys. */}}
{{- define "assay.setKeys" -}}
{{- $set := list -}}
{{- $values := index . 1 | default dict -}}
{{- range $key := splitList " " (last .) -}}
{{- if hasKey $values $key }}{{ $set = append $set (printf "%s.%s" (first $) $key) }}{{ end -}}
{{- end -}}
{{- join ", " $set -}}
{{- end -}}

{{/* Unknown keys: one line each, for the notes. */}}
{{- define "assay.unknown" -}}
{{- $gc := concat (list "enable" "enabled" "interval") (include "assay.gcKeys" . | splitList " ") -}}
{{- $known := dict "gc" $gc "topologyUpdater" (concat $gc (keys .Values.topology) (include "assay.topologyUpdaterKeys" . | splitList " ")) -}}
{{- $_ := set $known "master" (concat (list "enable" "podAnnotations" "podLabels") (keys .Values.controller) (include "assay.masterKeys" . | splitList " ")) -}}
{{- /* Maps of the controller with a fixed set of keys; the others accept any key. */}}
{{- range $map := list "image" "networkPolicy" "podDisruptionBudget" "rbac" "serviceAccount" }}
{{- $_ := set $known (printf "master.%s" $map) (concat (list "enable" "create" "unhealthyPodEvictionPolicy") (keys (get $.Values.controller $map))) }}
{{- end }}
{{- range $path, $keys := $known }}
{{- $at := $.Values }}
{{- range splitList "." $path }}{{ $at = get ($at | default dict) . }}{{ end }}
{{- range $key := keys ($at | default dict) | sortAlpha }}
{{- if not (has $key $keys) }}
- {{ $path }}.{{ $key }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" if the cluster has MutatingAdmissionPolicies. */}}
{{- define "assay.mutatingPolicies" -}}
{{- if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{/* What adds labels of requests to node selectors: policy, webhook or off. */}}
{{- define "assay.requests" -}}
{{- $served := include "assay.mutatingPolicies" . -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $limits := ($c.config | default dict).materializedRequests | default dict -}}
{{- $labels := not (or $c.instance ($c.config | default dict).instance (and (hasKey $limits "total") (eq (int $limits.total) 0))) -}}
{{- if eq .Values.scheduling.requests "policy" -}}
{{- if not $served }}{{ fail (printf "scheduling.requests: policy needs Kubernetes 1.36, and this is %s: set webhook, or leave it empty" .Capabilities.KubeVersion.Version) }}{{ end -}}
policy
{{- else if eq .Values.scheduling.requests "webhook" -}}
{{- if not .Values.webhook.enabled }}{{ fail "scheduling.requests: webhook needs webhook.enabled" }}{{ end -}}
webhook
{{- else if or .Values.scheduling.requests (not $labels) -}}
off
{{- else if $served -}}
policy
{{- else -}}
{{ ternary "webhook" "off" .Values.webhook.enabled }}
{{- end -}}
{{- end -}}

{{/* "true" if workers set their Node as the owner of their NodeFeatures: flags take precedence over the configuration, as in the worker. */}}
{{- define "assay.nodeOwns" -}}
{{- $core := (.Values.worker.config | default dict).core | default dict -}}
{{- if .Values.worker.ownerRefs -}}
{{- has "node" .Values.worker.ownerRefs -}}
{{- else if hasKey $core "ownerRefs" -}}
{{- has "node" ($core.ownerRefs | default list) -}}
{{- else -}}
{{- not $core.noOwnerRefs -}}
{{- end -}}
{{- end -}}
