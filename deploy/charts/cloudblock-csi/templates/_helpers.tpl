{{/* What differs between clouds, as YAML: clouds/CLOUD.yaml, whose keys clouds/schema.json describes. */}}
{{- define "cloudblock.cloud" -}}
{{ .Files.Get (printf "clouds/%s.yaml" .Values.cloud) }}
{{- end }}

{{/* What that file has about the driver that .Values.vendor names, as YAML; empty without one. */}}
{{- define "cloudblock.vendor" -}}
{{- if .Values.vendor }}
{{- $vendor := (include "cloudblock.cloud" . | fromYaml).vendor | default dict }}
{{- if not $vendor.driver }}
{{- fail (printf "vendor: %s has no other driver to take over from, and this is %q" .Values.cloud .Values.vendor) }}
{{- else if ne .Values.vendor $vendor.driver }}
{{- fail (printf "vendor: on %s it is %s or empty, and this is %q" .Values.cloud $vendor.driver .Values.vendor) }}
{{- end }}
{{- toYaml $vendor }}
{{- end }}
{{- end }}

{{/* The name of the CSIDriver object. */}}
{{- define "cloudblock.driver" -}}
{{ (include "cloudblock.vendor" . | fromYaml).driver | default (include "cloudblock.cloud" . | fromYaml).driver }}
{{- end }}

{{/* Helm's own labels, on every object but pods, whose labels would change with each version. */}}
{{- define "cloudblock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_." }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimAll "-_." | quote }}
{{- end }}

{{/* The labels and annotations of an object by (root, its labels, its annotations), with those that every object has. */}}
{{- define "cloudblock.metadata" -}}
{{- $root := index . 0 }}
{{- $labels := mustMergeOverwrite (dict) ($root.Values.commonLabels | default dict) (index . 1) (include "cloudblock.labels" $root | fromYaml) }}
{{- $annotations := mustMergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (index . 2) -}}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The name of the service account of a part by (root, controller or node). */}}
{{- define "cloudblock.account" -}}
{{- $root := index . 0 }}{{ $part := index . 1 -}}
{{ (get $root.Values $part).serviceAccount.name | default (printf "cloudblock-%s" $part) }}
{{- end }}

{{/* An image by (registry, {repository, digest}, tag). */}}
{{- define "cloudblock.image" -}}
{{- $registry := index . 0 }}{{ $image := index . 1 }}{{ $tag := index . 2 -}}
{{ $registry }}/{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{/* The flags that .Values.settings sets, as the keys of a ConfigMap: clusterId is CLUSTER_ID. */}}
{{- define "cloudblock.settings" -}}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if ne (toString $value) "" }}
{{ snakecase $name | upper }}: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- if ne .Values.kubeletDir "/var/lib/kubelet" }}
KUBELET_DIR: {{ .Values.kubeletDir | quote }}
{{- end }}
{{- end }}

{{/* The flags of a group of nodes, as variables, which win over the ConfigMap. */}}
{{- define "cloudblock.groupSettings" -}}
{{- range $name, $value := .settings }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
- name: CLOUDBLOCK_FLAG_{{ snakecase $name | upper }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}

{{/* The environment from which the driver's programs read these flags. */}}
{{- define "cloudblock.envFrom" -}}
- prefix: CLOUDBLOCK_FLAG_
  configMapRef:
    name: cloudblock-settings
    optional: true
{{- end }}

{{/* "true" with snapshots, otherwise empty. */}}
{{- define "cloudblock.snapshots" -}}
{{- $enabled := toString .Values.snapshots.enabled }}
{{- $cloud := include "cloudblock.cloud" . | fromYaml }}
{{- if $cloud.snapshotClasses }}
{{- $auto := and (not $cloud.snapshotSetting) (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1") }}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") $auto) }}true{{ end }}
{{- else if eq $enabled "true" }}
{{- fail (printf "snapshots.enabled: %s has no snapshots" .Values.cloud) }}
{{- end }}
{{- end }}

{{/* The variable with which both programs have snapshots, where they need one. */}}
{{- define "cloudblock.snapshotSetting" -}}
{{- if include "cloudblock.snapshots" . }}
{{- with (include "cloudblock.cloud" . | fromYaml).snapshotSetting -}}
- name: CLOUDBLOCK_FLAG_{{ .name }}
  value: {{ .value }}
{{- end }}
{{- end }}
{{- end }}

{{/* The token of the service account, which only the sidecars mount that talk to the API. */}}
{{- define "cloudblock.apiToken" -}}
- name: api-token
  projected:
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
{{- end }}

{{/* The binding of a role to the account of a part by (root, ClusterRole or Role, name, controller or node). */}}
{{- define "cloudblock.binding" -}}
{{- $root := index . 0 }}{{ $kind := index . 1 }}{{ $name := index . 2 }}{{ $part := index . 3 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $kind "Role" }}
  namespace: {{ $root.Release.Namespace | quote }}
  {{- end }}
  {{- include "cloudblock.metadata" (list $root dict dict) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ include "cloudblock.account" (list $root $part) | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
{{- end }}

{{/* The StorageClasses, as {classes: [...]}. With defaultStorageClass that one alone is the default. */}}
{{- define "cloudblock.storageClasses" -}}
{{- $classes := .Values.storageClasses }}
{{- if eq (toString $classes) "auto" }}
{{- $classes = (include "cloudblock.cloud" . | fromYaml).storageClasses }}
{{- with (include "cloudblock.vendor" . | fromYaml).storageClasses }}{{ $classes = concat $classes . }}{{ end }}
{{- end }}
{{- $marked := list }}{{ $names := list }}
{{- range $classes }}
{{- $names = append $names .name }}
{{- $marked = append $marked (set (deepCopy .) "default" (ternary (eq .name $.Values.defaultStorageClass) (.default | default false) (ne $.Values.defaultStorageClass ""))) }}
{{- end }}
{{- if and .Values.defaultStorageClass (not (has .Values.defaultStorageClass $names)) }}
{{- fail (printf "defaultStorageClass: no class of the chart is named %q; the classes are %s" .Values.defaultStorageClass (join ", " $names)) }}
{{- end }}
{{- toYaml (dict "classes" $marked) }}
{{- end }}

{{/* Where both programs of local mount their pools. */}}
{{- define "cloudblock.poolMounts" -}}
- {name: pool, mountPath: {{ .Values.local.pool }}, mountPropagation: HostToContainer}
{{- range .Values.local.morePools }}
{{- if not (hasPrefix "lvm:" .dir) }}
- {name: "pool-{{ .name }}", mountPath: {{ .dir }}, mountPropagation: HostToContainer}
{{- end }}
{{- end }}
{{- end }}

{{/* What LVM shares with the node, and the locks of its pools. */}}
{{- define "cloudblock.lvmMounts" -}}
- {name: lvm-settings, mountPath: /etc/lvm}
- {name: lvm-locks, mountPath: /run/lock/lvm}
- {name: lvm-runtime, mountPath: /run/lvm}
- {name: locks, mountPath: /run/cloudblock-csi}
{{- end }}

{{/* The pools of local, as the flag --local-pool takes them. */}}
{{- define "cloudblock.pools" -}}
{{ .Values.local.pool }}{{ range .Values.local.morePools }},{{ .name }}={{ .dir }}{{ end }}
{{- end }}
