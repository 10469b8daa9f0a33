{{- define "windvane.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "windvane.selector" -}}
app.kubernetes.io/name: windvane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "windvane.labels" -}}
{{ include "windvane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What both containers share: the image, the variables and the volumes. */}}
{{- define "windvane.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: WINDVANE_PORT
    value: "8787"
  - name: WINDVANE_DRAIN_SECONDS
    value: {{ .Values.drainSeconds | quote }}
  {{- if eq .Values.mode "postgresql" }}
  - name: WINDVANE_DATABASE
    valueFrom:
      secretKeyRef:
        name: {{ .Values.postgresql.existingSecret }}
        key: {{ .Values.postgresql.secretKey }}
  {{- end }}
  {{- range $name, $value := .Values.environment }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
{{- with .Values.environmentSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
volumeMounts:
  - name: state
    mountPath: /var/lib/windvane
  - name: temporary
    mountPath: /tmp
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The pods of both modes; a mode adds the volume "state". */}}
{{- define "windvane.pod" -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (addf (float64 .Values.drainSeconds) 25.0) }}
{{- fail "terminationGracePeriodSeconds must exceed drainSeconds plus 25 seconds" }}
{{- end }}
metadata:
  labels:
    {{- include "windvane.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  automountServiceAccountToken: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  initContainers:
    # Other hosts can connect to the service, so it starts only if the log has a valid key. This
    # container waits for the first one, which the notes of the chart say how to make.
    - name: first-key
      {{- include "windvane.container" . | nindent 6 }}
      command: ["/bin/sh", "-c"]
      args:
        - |
          until windvane key list --json 2>/dev/null | grep -q '"valid": true'; do
            echo "waiting for the first key"
            sleep 2
          done
  containers:
    - name: windvane
      {{- include "windvane.container" . | nindent 6 }}
      args: [serve]
      ports:
        - name: http
          containerPort: 8787
      startupProbe:  # compiling, if the processor differs from that of the image, and loading loops
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 2
        failureThreshold: 150
      readinessProbe:
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 2
        failureThreshold: 1
      livenessProbe:
        httpGet:
          path: /healthz
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
