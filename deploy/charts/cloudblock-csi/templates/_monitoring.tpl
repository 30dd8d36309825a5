{{/* "true" with a part of monitoring by (root, its name). auto: with monitoring.enabled, and objects of the Prometheus Operator only
where the cluster has their definitions, because an install with an unknown kind fails as a whole. */}}
{{- define "cloudblock.monitored" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}
{{- $enabled := toString (get $root.Values.monitoring $part).enabled }}
{{- if eq $enabled "auto" }}
{{- $enabled = toString (and $root.Values.monitoring.enabled (or (has $part (list "dashboard" "networkPolicy")) (include "cloudblock.operator" $root))) }}
{{- end }}
{{- if has $enabled (list "false" "") | not }}true{{ end }}
{{- end }}

{{/* "true" where the cluster has the definitions of the Prometheus Operator. */}}
{{- define "cloudblock.operator" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" }}true{{ end }}
{{- end }}

{{/* The selector of the driver's pods by (root, the selector without groups of nodes). */}}
{{- define "cloudblock.podSelector" -}}
{{- $root := index . 0 }}{{ $selector := deepCopy (index . 1) }}
{{- $names := (first $selector.matchExpressions).values }}
{{- range $root.Values.nodeGroups.groups }}{{ $names = append $names (printf "cloudblock-node-%s" .name) }}{{ end }}
{{- $_ := set (first $selector.matchExpressions) "values" $names }}
{{- toYaml $selector }}
{{- end }}
