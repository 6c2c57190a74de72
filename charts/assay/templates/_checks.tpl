{{/* Settings with which a program would not start, or that can match nothing. The schema of the values checks all others. */}}

{{/* Fails if a value is not a regular expression. Parameters: its path and the value. */}}
{{- define "assay.checkPattern" -}}
{{- /* The empty alternative matches the empty string; an invalid expression matches nothing. */}}
{{- if and (last .) (not (regexMatch (printf "|%s" (last .)) "")) }}{{ fail (printf "%s: invalid regular expression %q" (first .) (last .)) }}{{ end -}}
{{- end -}}

{{- define "assay.checkWorkerConfig" -}}
{{- $core := (.Values.worker.config | default dict).core | default dict -}}
{{- include "assay.checkPattern" (list "worker.config.core.labelWhiteList" $core.labelWhiteList) -}}
{{- end -}}

{{- define "assay.checkManagerConfig" -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $config := $c.config | default dict -}}
{{- include "assay.checkPattern" (list "controller.labelWhiteList" $c.labelWhiteList) -}}
{{- include "assay.checkPattern" (list "controller.config.labelWhiteList" $config.labelWhiteList) -}}
{{- include "assay.checkPattern" (list "controller.config.featureSources" $config.featureSources) -}}
{{- if include "assay.startupTaint" . -}}
{{- if or (not $c.featuresReady) (eq (toString $config.featuresReady) "false") }}{{ fail "controller.startupTaint is removed from nodes with the condition FeaturesReady; do not set controller.featuresReady to false" }}{{ end -}}
{{- if regexMatch "^[+]?[0.]+[a-zµμ]*$" (toString ($c.failOpenAfter | default $config.failOpenAfter | default "10m")) }}{{ fail "controller.failOpenAfter must be a positive duration, for example 10m" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The settings that match nothing or have no effect: one line each, for the notes. The programs log the same warnings. */}}
{{- define "assay.matchless" -}}
{{- $known := .Files.Get "files/names.yaml" | fromYaml -}}
{{- $c := include "assay.controller" . | fromYaml -}}
{{- $worker := .Values.worker.config | default dict -}}
{{- $core := $worker.core | default dict -}}
{{- $sources := $worker.sources | default dict -}}
{{- range $path, $pattern := dict "worker.config.core.labelWhiteList" $core.labelWhiteList "controller.labelWhiteList" $c.labelWhiteList "controller.config.labelWhiteList" ($c.config | default dict).labelWhiteList }}
{{- if regexMatch `(?i)[a-z0-9-]+\\?\.(com|io|org|net|dev|cloud)\b|/` ($pattern | default "") }}
- {{ $path }}: {{ $pattern }}: the namespace is not part of the name of a label; write for example ^(pci|cpu)-
{{- end }}
{{- end }}
{{- range $path, $namespaces := dict "controller.extraLabelNs" $c.extraLabelNs "controller.config.extraLabelNs" ($c.config | default dict).extraLabelNs }}
{{- range $namespace := $namespaces }}
{{- range $protected := $known.protectedNamespaces }}
{{- if or (eq $namespace $protected.namespace) (and $protected.below (hasSuffix (print "." $protected.namespace) $namespace)) }}
- {{ $path }}: {{ $namespace }} stays closed whatever is set: {{ $protected.why }}; remove it
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $path, $namespaces := dict "controller.extraLabelNs" $c.extraLabelNs "controller.config.extraLabelNs" ($c.config | default dict).extraLabelNs "controller.denyLabelNs" $c.denyLabelNs "controller.config.denyLabelNs" ($c.config | default dict).denyLabelNs }}
{{- range $namespace := $namespaces }}
{{- if regexMatch `[/*= ]` (ternary (trimPrefix "*" $namespace) $namespace (hasSuffix "denyLabelNs" $path)) }}
- {{ $path }}: no label has the namespace {{ $namespace | quote }}: write what is before the slash, for example vendor.example.com
{{- end }}
{{- end }}
{{- end }}
{{- range $key := list "featureSources" "labelSources" "sources" }}
{{- range $name := get $core $key | default list }}
{{- if not (has ($name | toString | trim | trimPrefix "-") (append $known.sources "all")) }}
- worker.config.core.{{ $key }}: unknown source {{ $name | toString | trim | trimPrefix "-" | quote }}; the sources are {{ join ", " $known.sources }}
{{- end }}
{{- end }}
{{- end }}
{{- range $bus, $digits := dict "pci" 4 "usb" 2 }}
{{- $options := get $sources $bus | default dict }}
{{- range $class := $options.deviceClassWhitelist }}
{{- if not (regexMatch (printf "^[0-9A-Fa-f]{1,%d}$" $digits) (toString $class)) }}
- worker.config.sources.{{ $bus }}.deviceClassWhitelist: no class of a device begins with {{ toString $class | quote }}: write an entry of up to {{ $digits }} hexadecimal digits for each class
{{- end }}
{{- end }}
{{- $fields := $options.deviceLabelFields | default list }}
{{- range $form := $options.deviceLabelForms }}{{ $fields = concat $fields ($form | default list) }}{{ end }}
{{- range $field := $fields }}
{{- if not (has $field (get $known (printf "%sFields" $bus))) }}
- worker.config.sources.{{ $bus }}: a device has no field {{ $field | quote }}; the fields are {{ join ", " (get $known (printf "%sFields" $bus)) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $option := ($sources.kernel | default dict).configOpts }}
{{- if regexMatch "^CONFIG_|[= ,*]|^$" (toString $option) }}
- worker.config.sources.kernel.configOpts: no kernel option is named {{ toString $option | quote }}: write one entry for each option, without CONFIG_ and without a value
{{- end }}
{{- end }}
{{- $cpuid := (($sources.cpu | default dict).cpuid) | default dict }}
{{- range $key := list "attributeBlacklist" "attributeWhitelist" }}
{{- range $name := get $cpuid $key | default list }}
{{- if not (has $name $known.capabilities) }}
- worker.config.sources.cpu.cpuid.{{ $key }}: no CPU capability is named {{ toString $name | quote }}; assay features cpu.cpuid lists names
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
