{{/* The node program with its sidecars, and for `local` the controller with its own. Each flag's reason is in
deploy/base/node/daemonset.yaml and in the cloud's overlay. The argument is the root with three keys more: `name` of the DaemonSet,
`nodes` that the label of the groups leaves it (an expression, or nil), and `settings` of the group. */}}
{{- define "cloudblock.nodeDaemonSet" -}}
{{- $local := eq .Values.cloud "local" }}
{{- $lvm := and $local .Values.local.lvm }}
{{- $host := ternary "127.0.0.1" "" .Values.hostNetwork }}
{{- $names := dict "app.kubernetes.io/name" .name "app.kubernetes.io/part-of" "cloudblock-csi" }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .Release.Namespace | quote }}
  {{- include "cloudblock.metadata" (list . $names dict) | nindent 2 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  {{- include "cloudblock.history" .Values.node | nindent 2 }}
  updateStrategy:
    {{- include "cloudblock.strategy" .Values.node.updateStrategy | nindent 4 }}
  template:
    metadata:
      {{- include "cloudblock.podMetadata" (list . .Values.node $names "node") | nindent 6 }}
    spec:
      serviceAccountName: {{ include "cloudblock.account" (list . "node") | quote }}
      automountServiceAccountToken: false
      {{- include "cloudblock.podSettings" (list . .Values.node) | nindent 6 }}
      priorityClassName: {{ .Values.node.priorityClassName | quote }}
      {{- if not $local }}
      hostNetwork: {{ .Values.hostNetwork }}
      {{- end }}
      nodeSelector:
        {{- toYaml .Values.node.nodeSelector | nindent 8 }}
      {{- with include "cloudblock.affinity" (list .Values.node.affinity .nodes) }}
      affinity:
        {{- . | nindent 8 }}
      {{- end }}
      tolerations:
        {{- toYaml .Values.node.tolerations | nindent 8 }}
      terminationGracePeriodSeconds: {{ eq (toString .Values.node.terminationGracePeriodSeconds) "auto" | ternary (ternary 40 30 $local) .Values.node.terminationGracePeriodSeconds }}
      securityContext:
        seccompProfile:
          type: RuntimeDefault
        {{- if $local }}
        fsGroup: 65532
        {{- end }}
        {{- if .Values.selinux }}
        seLinuxOptions:
          type: spc_t
        {{- end }}
      {{- with .Values.node.initContainers }}
      initContainers:
        {{- toYaml . | nindent 6 }}
      {{- end }}
      containers:
      - name: node
        {{- $ours := .Values.image.node }}
        {{- if $lvm }}
        {{- $ours = .Values.image.lvm }}
        {{- end }}
        image: {{ include "cloudblock.image" (list .Values.image.registry $ours (.Values.image.tag | default .Chart.AppVersion)) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        {{- if $lvm }}
        command: [/cloudblock-node]
        {{- end }}
        args:
        - --cloud={{ .Values.cloud }}
        {{- if $local }}
        - --node-id=$(NODE_NAME)
        {{- else }}
        - --driver-name=$(DRIVER_NAME)
        {{- end }}
        - --endpoint=unix:///csi/csi.sock
        - --http-endpoint={{ $host }}:{{ .Values.ports.node }}
        env:
        {{- with include "cloudblock.snapshotSetting" . }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if .Values.ioLimits }}
        - name: CLOUDBLOCK_FLAG_CGROUP_DIR
          value: /cgroup
        {{- end }}
        {{- if $local }}
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: CLOUDBLOCK_FLAG_LOCAL_POOL
          value: {{ include "cloudblock.pools" . }}
        {{- else }}
        - name: DRIVER_NAME
          value: {{ include "cloudblock.driver" . }}
        {{- end }}
        {{- with .settings }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .Values.node.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        envFrom:
        {{- include "cloudblock.envFrom" . | nindent 8 }}
        {{- with .Values.node.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: node
          containerPort: {{ .Values.ports.node }}
        livenessProbe:
          httpGet: {path: /healthz, port: {{ .Values.ports.livenessprobe }}{{ with $host }}, host: {{ . }}{{ end }}}
          {{- toYaml .Values.node.livenessProbe | nindent 10 }}
        readinessProbe:
          httpGet: {path: /readyz, port: node{{ with $host }}, host: {{ . }}{{ end }}}
          {{- toYaml .Values.node.readinessProbe | nindent 10 }}
        securityContext:
          privileged: true
          readOnlyRootFilesystem: true
          runAsUser: 0
          runAsGroup: 0
          seccompProfile:
            type: Unconfined
        resources:
          {{- toYaml .Values.node.resources | nindent 10 }}
        volumeMounts:
        {{- if .Values.ioLimits }}
        - name: cgroup-dir
          mountPath: /cgroup
        {{- end }}
        {{- if $local }}
        {{- if $lvm }}
        {{- include "cloudblock.lvmMounts" . | nindent 8 }}
        {{- end }}
        {{- include "cloudblock.poolMounts" . | nindent 8 }}
        - name: sys-dir
          mountPath: /sys
        {{- end }}
        - name: plugin-dir
          mountPath: /csi
        - name: staging-dir
          mountPath: {{ .Values.kubeletDir }}/plugins/kubernetes.io/csi
          mountPropagation: Bidirectional
        - name: pods-dir
          mountPath: {{ .Values.kubeletDir }}/pods
          mountPropagation: Bidirectional
        - name: dev-dir
          mountPath: /dev
        - name: cryptsetup-dir
          mountPath: /run/cryptsetup
        {{- with .Values.node.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if $local }}
      - name: controller
        {{- $ours := .Values.image.controller }}
        {{- if $lvm }}
        {{- $ours = .Values.image.lvm }}
        {{- end }}
        image: {{ include "cloudblock.image" (list .Values.image.registry $ours (.Values.image.tag | default .Chart.AppVersion)) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        {{- if $lvm }}
        command: [/cloudblock-controller]
        {{- end }}
        args:
        - --cloud=local
        - --node-id=$(NODE_NAME)
        - --endpoint=unix:///csi/csi.sock
        - --http-endpoint=:{{ .Values.ports.controller }}
        env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: CLOUDBLOCK_FLAG_LOCAL_POOL
          value: {{ include "cloudblock.pools" . }}
        {{- with .settings }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .Values.controller.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        envFrom:
        {{- include "cloudblock.envFrom" . | nindent 8 }}
        {{- with .Values.controller.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: controller
          containerPort: {{ .Values.ports.controller }}
        livenessProbe:
          httpGet: {path: /healthz, port: controller}
          {{- toYaml .Values.controller.livenessProbe | nindent 10 }}
        readinessProbe:
          httpGet: {path: /readyz, port: controller}
          {{- toYaml .Values.controller.readinessProbe | nindent 10 }}
        securityContext:
          runAsUser: 0
          runAsGroup: 0
          readOnlyRootFilesystem: true
          {{- if $lvm }}
          privileged: true
          seccompProfile:
            type: Unconfined
          {{- else }}
          allowPrivilegeEscalation: false
          capabilities:
            drop: [ALL]
          {{- end }}
        resources:
          {{- toYaml .Values.local.controllerResources | nindent 10 }}
        volumeMounts:
        {{- if $lvm }}
        - {name: dev-dir, mountPath: /dev}
        {{- include "cloudblock.lvmMounts" . | nindent 8 }}
        {{- end }}
        - name: controller-socket
          mountPath: /csi
        {{- include "cloudblock.poolMounts" . | nindent 8 }}
        {{- with .Values.controller.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      - name: csi-provisioner
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.provisioner .Values.sidecars.provisioner.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --node-deployment=true
        - --strict-topology=true
        - --immediate-topology=false
        - --node-deployment-immediate-binding=true
        - --node-deployment-base-delay=10s
        - --enable-capacity=true
        - --capacity-ownerref-level=1
        - --capacity-poll-interval=30s
        - --timeout=60s
        - --retry-interval-max=1m
        - --extra-create-metadata=true
        - --default-fstype=ext4
        - --kube-api-qps=50
        - --kube-api-burst=100
        - --http-endpoint=:{{ .Values.ports.provisioner }}
        {{- with .Values.sidecars.provisioner.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- with .Values.sidecars.provisioner.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: provisioner
          containerPort: {{ .Values.ports.provisioner }}
        securityContext: &unprivileged
          runAsNonRoot: true
          runAsUser: 65532
          runAsGroup: 65532
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
        resources:
          {{- toYaml .Values.sidecars.provisioner.resources | nindent 10 }}
        volumeMounts: &mounts
        - name: controller-socket
          mountPath: /csi
        - name: api-token
          mountPath: /var/run/secrets/kubernetes.io/serviceaccount
          readOnly: true
      - name: csi-resizer
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.resizer .Values.sidecars.resizer.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --leader-election=true
        - --leader-election-lease-duration=30s
        - --leader-election-renew-deadline=20s
        - --leader-election-retry-period=10s
        - --handle-volume-inuse-error=false
        - --retry-interval-max=1m
        - --kube-api-qps=50
        - --kube-api-burst=100
        - --http-endpoint=:{{ .Values.ports.resizer }}
        {{- with .Values.sidecars.resizer.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .Values.sidecars.resizer.extraEnv }}
        env:
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: resizer
          containerPort: {{ .Values.ports.resizer }}
        livenessProbe:
          httpGet: {path: /healthz/leader-election, port: resizer}
          {{- toYaml .Values.sidecars.resizer.livenessProbe | nindent 10 }}
        securityContext: *unprivileged
        resources:
          {{- toYaml .Values.sidecars.resizer.resources | nindent 10 }}
        volumeMounts: *mounts
      {{- if include "cloudblock.snapshots" . }}
      - name: csi-snapshotter
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.snapshotter .Values.sidecars.snapshotter.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --node-deployment=true
        - --timeout=60s
        - --retry-interval-max=1m
        - --extra-create-metadata=true
        - --kube-api-qps=50
        - --kube-api-burst=100
        - --http-endpoint=:{{ .Values.ports.snapshotter }}
        {{- with .Values.sidecars.snapshotter.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- with .Values.sidecars.snapshotter.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: snapshotter
          containerPort: {{ .Values.ports.snapshotter }}
        securityContext: *unprivileged
        resources:
          {{- toYaml .Values.sidecars.snapshotter.resources | nindent 10 }}
        volumeMounts: *mounts
      {{- end }}
      {{- if .Values.local.changedBlocks }}
      - name: csi-snapshot-metadata
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.snapshotMetadata .Values.sidecars.snapshotMetadata.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --port={{ .Values.ports.blocks }}
        - --kube-api-qps=50
        - --kube-api-burst=100
        - --http-endpoint=:{{ .Values.ports.snapshotMetadata }}
        {{- with .Values.sidecars.snapshotMetadata.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        - name: TLS_CERT_PATH
          value: /certificates/tls.crt
        - name: TLS_KEY_PATH
          value: /certificates/tls.key
        {{- with .Values.sidecars.snapshotMetadata.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: blocks
          containerPort: {{ .Values.ports.blocks }}
        - name: blocks-health
          containerPort: {{ .Values.ports.snapshotMetadata }}
        readinessProbe:
          httpGet: {path: /health, port: blocks-health}
          {{- toYaml .Values.sidecars.snapshotMetadata.readinessProbe | nindent 10 }}
        securityContext: *unprivileged
        resources:
          {{- toYaml .Values.sidecars.snapshotMetadata.resources | nindent 10 }}
        volumeMounts:
        - name: controller-socket
          mountPath: /csi
        - name: certificates
          mountPath: /certificates
          readOnly: true
        - name: api-token
          mountPath: /var/run/secrets/kubernetes.io/serviceaccount
          readOnly: true
      {{- end }}
      {{- end }}
      - name: node-driver-registrar
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.registrar .Values.sidecars.registrar.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --kubelet-registration-path=$(KUBELET_DIR)/plugins/$(DRIVER_NAME)/csi.sock
        - --http-endpoint={{ $host }}:{{ .Values.ports.registrar }}
        {{- with .Values.sidecars.registrar.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        env:
        - name: KUBELET_DIR
          value: {{ .Values.kubeletDir }}
        - name: DRIVER_NAME
          value: {{ include "cloudblock.driver" . }}
        {{- with .Values.sidecars.registrar.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: registrar
          containerPort: {{ .Values.ports.registrar }}
        livenessProbe:
          httpGet: {path: /healthz, port: registrar{{ with $host }}, host: {{ . }}{{ end }}}
          {{- toYaml .Values.sidecars.registrar.livenessProbe | nindent 10 }}
        securityContext: &bare
          runAsUser: 0
          runAsGroup: 0
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
        resources:
          {{- toYaml .Values.sidecars.registrar.resources | nindent 10 }}
        volumeMounts:
        - name: plugin-dir
          mountPath: /csi
        - name: registration-dir
          mountPath: /registration
      - name: livenessprobe
        image: {{ include "cloudblock.image" (list .Values.sidecars.registry .Values.sidecars.livenessprobe .Values.sidecars.livenessprobe.tag) }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --csi-address=/csi/csi.sock
        - --http-endpoint={{ $host }}:{{ .Values.ports.livenessprobe }}
        - --probe-timeout=4s
        {{- with .Values.sidecars.livenessprobe.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .Values.sidecars.livenessprobe.extraEnv }}
        env:
        {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - name: node-alive
          containerPort: {{ .Values.ports.livenessprobe }}
        securityContext: *bare
        resources:
          {{- toYaml .Values.sidecars.livenessprobe.resources | nindent 10 }}
        volumeMounts:
        - name: plugin-dir
          mountPath: /csi
      {{- with .Values.node.extraContainers }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      volumes:
      {{- if .Values.ioLimits }}
      - name: cgroup-dir
        hostPath: {path: /sys/fs/cgroup, type: Directory}
      {{- end }}
      {{- if $local }}
      - name: pool
        hostPath: {path: {{ .Values.local.pool }}, type: Directory}
      {{- range .Values.local.morePools }}
      {{- if not (hasPrefix "lvm:" .dir) }}
      - name: pool-{{ .name }}
        hostPath: {path: {{ .dir }}, type: DirectoryOrCreate}
      {{- end }}
      {{- end }}
      {{- if $lvm }}
      - name: lvm-settings
        hostPath: {path: /etc/lvm, type: Directory}
      - name: lvm-locks
        hostPath: {path: /run/lock/lvm, type: DirectoryOrCreate}
      - name: lvm-runtime
        hostPath: {path: /run/lvm, type: DirectoryOrCreate}
      - name: locks
        hostPath: {path: /run/cloudblock-csi, type: DirectoryOrCreate}
      {{- end }}
      - name: sys-dir
        hostPath: {path: /sys, type: Directory}
      - name: controller-socket
        emptyDir:
          medium: Memory
          sizeLimit: 1Mi
      {{- if .Values.local.changedBlocks }}
      - name: certificates
        secret: {secretName: cloudblock-snapshot-metadata, optional: true}
      {{- end }}
      {{- include "cloudblock.apiToken" . | nindent 6 }}
      {{- with .Values.controller.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- end }}
      - name: plugin-dir
        hostPath: {path: {{ .Values.kubeletDir }}/plugins/{{ include "cloudblock.driver" . }}, type: DirectoryOrCreate}
      - name: registration-dir
        hostPath: {path: {{ .Values.kubeletDir }}/plugins_registry, type: Directory}
      - name: staging-dir
        hostPath: {path: {{ .Values.kubeletDir }}/plugins/kubernetes.io/csi, type: DirectoryOrCreate}
      - name: pods-dir
        hostPath: {path: {{ .Values.kubeletDir }}/pods, type: Directory}
      - name: dev-dir
        hostPath: {path: /dev, type: Directory}
      - name: cryptsetup-dir
        hostPath: {path: /run/cryptsetup, type: DirectoryOrCreate}
      {{- with .Values.node.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}
