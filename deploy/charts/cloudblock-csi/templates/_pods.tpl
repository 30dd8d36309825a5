{{/* The metadata of a pod template by (root, the values of its part, its own labels, the container that kubectl shows). */}}
{{- define "cloudblock.podMetadata" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}{{ $names := index . 2 }}
{{- $own := dict "kubectl.kubernetes.io/default-container" (index . 3) }}
{{- with include "cloudblock.settings" $root }}{{ $_ := set $own "checksum/settings" (sha256sum .) }}{{ end -}}
labels:
  {{- toYaml (mustMergeOverwrite (dict) ($root.Values.commonLabels | default dict) ($part.podLabels | default dict) $names) | nindent 2 }}
annotations:
  {{- toYaml (mustMergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) $own ($part.podAnnotations | default dict)) | nindent 2 }}
{{- end }}

{{/* What a pod has only if its part's values say so, by (root, these values). */}}
{{- define "cloudblock.podSettings" -}}
{{- $root := index . 0 }}{{ $part := index . 1 }}
{{- range $field := list "schedulerName" "dnsPolicy" }}
{{- with get $part $field }}
{{ $field }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $part.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $root.Values.imagePullSecrets (not $part.serviceAccount.create) }}
# An account that the chart does not make may have none.
imagePullSecrets:
  {{- toYaml $root.Values.imagePullSecrets | nindent 2 }}
{{- end }}
{{- end }}

{{/* How many old revisions the API server keeps of a workload, by the values of its part. */}}
{{- define "cloudblock.history" -}}
{{- if ne (toString .revisionHistoryLimit) "" -}}
revisionHistoryLimit: {{ .revisionHistoryLimit }}
{{- end }}
{{- end }}

{{/* An update strategy. The API refuses the numbers of a rolling update with any other type. */}}
{{- define "cloudblock.strategy" -}}
{{- if eq .type "RollingUpdate" }}{{ toYaml . }}{{ else }}type: {{ .type }}{{ end }}
{{- end }}

{{/* The affinity by (affinity, node expression or nil): each term of the operator's demands the expression too, because one term
of several is enough. */}}
{{- define "cloudblock.affinity" -}}
{{- $affinity := deepCopy (index . 0 | default dict) }}{{ $expression := index . 1 }}
{{- if $expression }}
{{- $node := $affinity.nodeAffinity | default dict }}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict }}
{{- $terms := list }}
{{- range $required.nodeSelectorTerms | default (list dict) }}
{{- $terms = append $terms (set . "matchExpressions" (append (.matchExpressions | default list) $expression)) }}
{{- end }}
{{- $_ := set $required "nodeSelectorTerms" $terms }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" $required }}
{{- $_ := set $affinity "nodeAffinity" $node }}
{{- end }}
{{- with $affinity }}{{ toYaml . }}{{ end }}
{{- end }}
