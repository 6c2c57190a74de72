{{/* How values that were written for Node Feature Discovery's chart are understood. */}}

{{/* "true" if the repository is one of Node Feature Discovery, whose images hold other programs. */}}
{{- define "assay.foreignImage" -}}
{{- if hasSuffix "node-feature-discovery" (.Values.image.repository | toString | trimSuffix "/") -}}true{{- end -}}
{{- end -}}

{{/* An image: call with root, the name and, if the part has an image of its own, that as own. */}}
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

{{/* A repository, with global.imageRegistry in place of its registry: the first part, if it is the name of a host. */}}
{{- define "assay.registry" -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry | default "" | trimSuffix "/" -}}
{{- $host := regexFind "^([^/]+[.:][^/]*|localhost)/" .repository -}}
{{- if $registry -}}{{ $registry }}/{{ trimPrefix $host .repository }}{{- else -}}{{ .repository }}{{- end -}}
{{- end -}}

{{/* The values of the controller, with those of `master` over them, as YAML. */}}
{{- define "assay.controller" -}}
{{- mustMergeOverwrite (deepCopy .Values.controller) (deepCopy (.Values.master | default dict)) | toYaml -}}
{{- end -}}

{{/*
The configuration of the manager, in the form of Node Feature Discovery's master, as YAML. Controller, webhook and extender are
given the same one: the webhook must not let pass what the controller then refuses.
*/}}
{{- define "assay.managerConfig" -}}
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

{{/* Rules that are built in, where whoever evaluates rules reads them. */}}
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

{{/* What each program that evaluates rules may do in Assay's own namespace: read what rules refer to, what they last resolved to, and feature sets. */}}
{{- define "assay.referenceRights" -}}
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
- apiGroups: [assay.dev]
  resources: [nodefeaturesets]
  verbs: [list, watch]
{{- end -}}

{{/* And in the cluster: see whether the definition of rules is Assay's. */}}
{{- define "assay.definitionRights" -}}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [get]
  resourceNames: [nodefeaturerules.nfd.k8s-sigs.io]
{{- end -}}

{{/* It is read at the start, so pods start anew when it changes. */}}
{{- define "assay.configChecksum" -}}
checksum/config: {{ include "assay.managerConfig" . | sha256sum }}
{{- end -}}

{{/* What rules mean, as arguments that win over the configuration: a YAML list, the same for all three. */}}
{{- define "assay.ruleArgs" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $args := list -}}
{{- with $c.instance }}{{ $args = append $args (printf "--instance=%s" .) }}{{ end -}}
{{- with $c.extraLabelNs }}{{ $args = append $args (printf "--extra-label-ns=%s" (join "," .)) }}{{ end -}}
{{- with $c.denyLabelNs }}{{ $args = append $args (printf "--deny-label-ns=%s" (join "," .)) }}{{ end -}}
{{- with $c.labelWhiteList }}{{ $args = append $args (printf "--label-whitelist=%s" .) }}{{ end -}}
{{- with $c.defaultScope }}{{ $args = append $args (printf "--default-scope=%s" .) }}{{ end -}}
{{- with $c.defaultNodeScope }}{{ $args = append $args (printf "--default-node-scope=%s" .) }}{{ end -}}
{{- if $c.builtInRules }}{{ $args = append $args "--built-in-rules=/etc/assay/rules" }}{{ end -}}
{{- with $c.removalGracePeriod }}{{ $args = append $args (printf "--removal-grace-period=%s" .) }}{{ end -}}
{{- if $c.enableTaints }}{{ $args = append $args "--enable-taints" }}{{ end -}}
{{- if not $c.allowFail }}{{ $args = append $args "--allow-fail=false" }}{{ end -}}
{{- if $c.nfdStrict }}{{ $args = append $args "--nfd-strict" }}{{ end -}}
{{- range $name, $on := .Values.featureGates | default dict }}{{ $args = append $args (printf "--feature-gates=%s=%t" $name $on) }}{{ end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* What else the controller is told, as a YAML list. */}}
{{- define "assay.controllerArgs" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $args := list -}}
{{- with $c.failTaint }}{{ $args = append $args (printf "--fail-taint=%s" .) }}{{ end -}}
{{- if and .Values.scheduling.enabled (not (hasKey (.Values.featureGates | default dict) "FeatureScheduling")) }}{{ $args = append $args "--feature-gates=FeatureScheduling=true" }}{{ end -}}
{{- with $c.resyncPeriod }}{{ $args = append $args (printf "--resync-period=%s" .) }}{{ end -}}
{{- with $c.nfdApiParallelism }}{{ $args = append $args (printf "--nfd-api-parallelism=%d" (int .)) }}{{ end -}}
{{- with (.Values.gc | default dict).interval }}{{ $args = append $args (printf "--gc-interval=%s" .) }}{{ end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Whether rules may create taints, "true" or nothing. */}}
{{- define "assay.taints" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if or $c.enableTaints ($c.config | default dict).enableTaints -}}true{{- end -}}
{{- end -}}

{{/* Whether the controller puts taints on Nodes for any reason, "true" or nothing. */}}
{{- define "assay.writesTaints" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- if or (include "assay.taints" .) $c.failTaint ($c.config | default dict).failTaint -}}true{{- end -}}
{{- end -}}

{{/* Whether the controller looks at pods that ask for features, "true" or nothing. The gate wins over the switch. */}}
{{- define "assay.followsPods" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $config := ($c.config | default dict).featureGates | default dict -}}
{{- $default := ternary true (get $config "FeatureScheduling") .Values.scheduling.enabled -}}
{{- if dig "FeatureScheduling" $default (.Values.featureGates | default dict) -}}true{{- end -}}
{{- end -}}

{{/* What was set and means nothing here: one line each, for the notes. */}}
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
{{- if include "assay.enabled" (.Values.topologyUpdater | default dict) }}
- topologyUpdater: Assay publishes no NodeResourceTopology; keep Node Feature Discovery's topology updater for that
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
Keys that values for Node Feature Discovery may have and that mean nothing here. The schema accepts any key below master, gc and
topologyUpdater, since versions of that chart differ; the notes warn of those that are neither here nor among the controller's.
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

{{/* Those of some keys that are set, with their path: call with the path, the values and the keys. */}}
{{- define "assay.setKeys" -}}
{{- $set := list -}}
{{- $values := index . 1 | default dict -}}
{{- range $key := splitList " " (last .) -}}
{{- if hasKey $values $key }}{{ $set = append $set (printf "%s.%s" (first $) $key) }}{{ end -}}
{{- end -}}
{{- join ", " $set -}}
{{- end -}}

{{/* Keys that no chart has: one line each, for the notes. */}}
{{- define "assay.unknown" -}}
{{- $gc := concat (list "enable" "enabled" "interval") (include "assay.gcKeys" . | splitList " ") -}}
{{- $known := dict "gc" $gc "topologyUpdater" (concat $gc (include "assay.topologyUpdaterKeys" . | splitList " ")) -}}
{{- $_ := set $known "master" (concat (list "enable" "podAnnotations" "podLabels") (keys .Values.controller) (include "assay.masterKeys" . | splitList " ")) -}}
{{- /* Maps of the controller that list their keys; in the others a user may write any. */}}
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

{{/* Whether workers make their Node the owner of what they publish: flags win over the configuration, as in the worker. */}}
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
