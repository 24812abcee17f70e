{{- /*
The objects are read from files/, which are crds/ and manifests/, so that Helm and kustomize install the same ones.
Here is what values and release change in them.
*/ -}}

{{- /* The objects of a file of manifests/, as {"items": [...]} in YAML. Call with root and file. */ -}}
{{- define "numazones.read" -}}
{{- $values := .root.Values -}}
{{- $text := .root.Files.Get (printf "files/manifests/%s" .file) | required (printf "the chart lacks manifests/%s" .file) -}}
{{- $text = regexReplaceAll "\\bnumazones-system\\b" $text $values.exporter.namespace -}}
{{- $text = regexReplaceAll "(\\bnamespace: *|--namespace=|:serviceaccount:)numazones-operator\\b" $text (printf "${1}%s" $values.operator.namespace) -}}
{{- $text = replace "https://numazones.example/runbooks" $values.operator.runbookURL $text -}}
{{- $items := list -}}
{{- range $part := regexSplit "(?m)^---$" $text -1 -}}
{{- $object := fromYaml $part -}}
{{- if and (eq $object.kind "Namespace") (eq $object.metadata.name "numazones-operator") -}}
{{- $_ := set $object.metadata "name" $values.operator.namespace -}}
{{- end -}}
{{- $items = append $items $object -}}
{{- end -}}
{{- toYaml (dict "items" $items) -}}
{{- end -}}

{{- /* Write an object with the labels of the release. Call with root and object. */ -}}
{{- define "numazones.write" -}}
{{- $labels := dict
  "app.kubernetes.io/part-of" "numazones"
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- $_ := set .object.metadata "labels" (mergeOverwrite (.object.metadata.labels | default dict) $labels) }}
---
{{ toYaml .object }}
{{- end -}}

{{- /* Write all objects of some files. Call with root and files. */ -}}
{{- define "numazones.files" -}}
{{- $root := .root -}}
{{- range $file := .files -}}
{{- range $object := (include "numazones.read" (dict "root" $root "file" $file) | fromYaml).items -}}
{{- include "numazones.write" (dict "root" $root "object" $object) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
Write a program's DaemonSet or Deployment with what its values ask for. Call with root, file, values, and patches: the
components' patches whose variables it gets.
*/ -}}
{{- define "numazones.workload" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $object := (include "numazones.read" (dict "root" .root "file" .file) | fromYaml).items | first -}}
{{- $template := $object.spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- $image := printf "%s:%s" $values.image.repository ($values.image.tag | default .root.Chart.AppVersion) -}}
{{- if $values.image.digest -}}
{{- $image = printf "%s@%s" $values.image.repository $values.image.digest -}}
{{- end -}}
{{- $_ := set $container "image" $image -}}
{{- with $values.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- $env := $container.env -}}
{{- range $patch := .patches -}}
{{- $patched := (include "numazones.read" (dict "root" $root "file" $patch) | fromYaml).items | first -}}
{{- $env = concat $env (first $patched.spec.template.spec.containers).env -}}
{{- end -}}
{{- $_ := set $container "env" (concat $env $values.extraEnv) -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $values.tolerations -}}{{- $_ := set $pod "tolerations" . -}}{{- end -}}
{{- with $values.affinity -}}{{- $_ := set $pod "affinity" . -}}{{- end -}}
{{- with $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector .) -}}{{- end -}}
{{- with .root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- with $values.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite $template.metadata.annotations .) -}}
{{- end -}}
{{- /* The labels that selectors look for stay. */ -}}
{{- with $values.podLabels -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels .) -}}
{{- end -}}
{{- if hasKey $values "replicas" -}}{{- $_ := set $object.spec "replicas" ($values.replicas | int) -}}{{- end -}}
{{- with $values.seLinuxOptions -}}{{- $_ := set $pod.securityContext "seLinuxOptions" . -}}{{- end -}}
{{- with $values.kubeletDir -}}
{{- $kubelet := . -}}
{{- range $pod.volumes -}}
{{- if eq .name "kubelet" -}}{{- $_ := set .hostPath "path" $kubelet -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- include "numazones.write" (dict "root" .root "object" $object) -}}
{{- end -}}
