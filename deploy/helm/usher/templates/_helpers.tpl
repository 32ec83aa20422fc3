{{- define "usher.labels" -}}
app.kubernetes.io/name: usher
{{- end }}

{{- define "usher.managerLabels" -}}
app.kubernetes.io/name: usher
app.kubernetes.io/component: manager
{{- end }}

{{- define "usher.gates" -}}
{{- $gates := list }}
{{- range $name, $on := .Values.featureGates }}
{{- $gates = append $gates (printf "%s=%t" $name $on) }}
{{- end }}
{{- join "," $gates }}
{{- end }}
