{{- /*
The objects are read from files/, which are crds/ and manifests/, so that Helm and kustomize install the same ones.
Here is what values and release change in them.
*/ -}}

{{- /* Fail where --reuse-values brings the values of an older chart, which lack what was added since. */ -}}
{{- define "numazones.check" -}}
{{- range list "networkPolicies" "roles" "monitoring" "scheduler" "extender" -}}
{{- if not (hasKey $.Values .) -}}
{{- fail (printf "the values lack %s because they are from an older chart; upgrade with --reset-then-reuse-values instead of --reuse-values" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The namespace of a program; empty in the values: the release's. Call with root and program. */ -}}
{{- define "numazones.namespace" -}}
{{- (index .root.Values .program).namespace | default .root.Release.Namespace -}}
{{- end -}}

{{- /* Where runbooks are served; empty: nowhere. 0.2 had an address there that leads nowhere, and --reuse-values keeps it. */ -}}
{{- define "numazones.runbooks" -}}
{{- $url := .Values.operator.runbookURL -}}
{{- if not (contains "://numazones.example/" $url) -}}{{- $url -}}{{- end -}}
{{- end -}}

{{- /* The objects of a file of manifests/, as {"items": [...]} in YAML. Call with root and file. */ -}}
{{- define "numazones.read" -}}
{{- $values := .root.Values -}}
{{- $exporters := include "numazones.namespace" (dict "root" .root "program" "exporter") -}}
{{- $operators := include "numazones.namespace" (dict "root" .root "program" "operator") -}}
{{- $text := .root.Files.Get (printf "files/manifests/%s" .file) | required (printf "the chart lacks manifests/%s" .file) -}}
{{- $separator := "(?m)^---$" -}}
{{- $shipped := regexSplit $separator $text -1 -}}
{{- $text = regexReplaceAll "\\bnumazones-system\\b" $text $exporters -}}
{{- $text = regexReplaceAll "(\\bnamespace: *|\\bresourceNamespace: *|--namespace=|:serviceaccount:|serviceAccount\\('|\\.namespace\\(')numazones-operator\\b" $text (printf "${1}%s" $operators) -}}
{{- range $program := list "exporter" "operator" -}}
{{- with (index $values $program).serviceAccount.name -}}
{{- $text = regexReplaceAll (printf "(serviceAccountName: |:serviceaccount:[-a-z0-9]+:|serviceAccount\\('[-a-z0-9]+', '|kind: ServiceAccount\\n(?:    |metadata:\\n  )name: )numazones-%s\\b" $program) $text (printf "${1}%s" .) -}}
{{- end -}}
{{- end -}}
{{- $runbooks := include "numazones.runbooks" .root -}}
{{- $items := list -}}
{{- range $index, $part := regexSplit $separator $text -1 -}}
{{- $object := fromYaml $part -}}
{{- /* Roles of one name in both namespaces are two in one namespace. */ -}}
{{- $before := (fromYaml (index $shipped $index)).metadata -}}
{{- if and (eq $exporters $operators) (has $object.kind (list "Role" "RoleBinding")) (eq $before.namespace "numazones-system") -}}
{{- $_ := set $object.metadata "name" (printf "%s-exporters" $object.metadata.name) -}}
{{- with $object.roleRef -}}{{- $_ := set . "name" (printf "%s-exporters" .name) -}}{{- end -}}
{{- end -}}
{{- if and (eq $object.kind "Namespace") (eq $object.metadata.name "numazones-operator") -}}
{{- $_ := set $object.metadata "name" $operators -}}
{{- end -}}
{{- if and (eq $object.kind "NetworkPolicy") $object.spec.egress -}}
{{- $ports := list -}}
{{- range $port := (last $object.spec.egress).ports -}}
{{- if not (has ($port.port | int) (list 443 6443)) -}}{{- $ports = append $ports $port -}}{{- end -}}
{{- end -}}
{{- range $port := reverse $values.networkPolicies.apiServerPorts -}}
{{- $ports = prepend $ports (dict "protocol" "TCP" "port" ($port | int)) -}}
{{- end -}}
{{- $_ := set (last $object.spec.egress) "ports" $ports -}}
{{- end -}}
{{- if has $object.kind (list "PodMonitor" "PrometheusRule") -}}
{{- with $values.monitoring.labels -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite ($object.metadata.labels | default dict) .) -}}
{{- end -}}
{{- end -}}
{{- if and $runbooks (eq $object.kind "PrometheusRule") -}}
{{- range $group := $object.spec.groups -}}
{{- range $rule := $group.rules -}}
{{- if $rule.alert -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/#%s" $runbooks (lower $rule.alert)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $object.kind "PodMonitor" -}}
{{- with $values.monitoring.interval -}}
{{- range $object.spec.podMetricsEndpoints -}}{{- $_ := set . "interval" $values.monitoring.interval -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $object.kind "ServiceAccount" -}}
{{- with (index $values (base (dir $.file))).serviceAccount -}}
{{- with .annotations -}}{{- $_ := set $object.metadata "annotations" . -}}{{- end -}}
{{- end -}}
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
Write a program's DaemonSet or Deployment with what its values ask for. Call with root, file, values, image (values of our
program's image), and patches: the components' patches whose variables it gets. Where our program is a sidecar, its is
the first init container.
*/ -}}
{{- define "numazones.workload" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $object := (include "numazones.read" (dict "root" .root "file" .file) | fromYaml).items | first -}}
{{- $template := $object.spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first (concat ($pod.initContainers | default list) $pod.containers) -}}
{{- $_ := include "numazones.image" (dict "container" $container "image" .image "tag" .root.Chart.AppVersion) -}}
{{- $env := $container.env | default list -}}
{{- range $patch := .patches -}}
{{- $patched := (include "numazones.read" (dict "root" $root "file" $patch) | fromYaml).items | first -}}
{{- $env = concat $env (first $patched.spec.template.spec.containers).env -}}
{{- with (first $patched.spec.template.spec.containers).volumeMounts -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts .) -}}
{{- end -}}
{{- with $patched.spec.template.spec.volumes -}}{{- $_ := set $pod "volumes" (concat $pod.volumes .) -}}{{- end -}}
{{- end -}}
{{- with concat $env $values.extraEnv -}}{{- $_ := set $container "env" . -}}{{- end -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $values.tolerations -}}{{- $_ := set $pod "tolerations" . -}}{{- end -}}
{{- with $values.affinity -}}{{- $_ := set $pod "affinity" . -}}{{- end -}}
{{- with $values.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (mergeOverwrite $pod.nodeSelector .) -}}{{- end -}}
{{- with .root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- if .root.Values.monitoring.scrapeAnnotations -}}
{{- $port := printf "%v" (first $container.ports).containerPort -}}
{{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" $port "prometheus.io/path" "/metrics" -}}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite $template.metadata.annotations $scrape) -}}
{{- end -}}
{{- with $values.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" (mergeOverwrite $template.metadata.annotations .) -}}
{{- end -}}
{{- with $values.annotations -}}{{- $_ := set $object.metadata "annotations" . -}}{{- end -}}
{{- with $values.priorityClassName -}}{{- $_ := set $pod "priorityClassName" . -}}{{- end -}}
{{- with $values.nodeName -}}{{- $_ := set $pod "nodeName" . -}}{{- end -}}
{{- with $values.podSecurityContext -}}
{{- $_ := set $pod "securityContext" (mergeOverwrite $pod.securityContext .) -}}
{{- end -}}
{{- with $values.securityContext -}}
{{- $_ := set $container "securityContext" (mergeOverwrite $container.securityContext .) -}}
{{- end -}}
{{- /* The labels that selectors look for stay. */ -}}
{{- with $values.podLabels -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels .) -}}
{{- end -}}
{{- if hasKey $values "replicas" -}}{{- $_ := set $object.spec "replicas" ($values.replicas | int) -}}{{- end -}}
{{- with $values.seLinuxOptions -}}{{- $_ := set $pod.securityContext "seLinuxOptions" . -}}{{- end -}}
{{- with $values.secretName -}}
{{- $secret := . -}}
{{- range $pod.volumes -}}{{- with .secret -}}{{- $_ := set . "secretName" $secret -}}{{- end -}}{{- end -}}
{{- end -}}
{{- with $values.image -}}
{{- range $other := slice $pod.containers (ternary 0 1 (hasKey $pod "initContainers")) -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $root.Capabilities.KubeVersion.Version -}}
{{- $_ := include "numazones.image" (dict "container" $other "image" $values.image "tag" $version) -}}
{{- end -}}
{{- end -}}
{{- with $values.kubeletDir -}}
{{- $kubelet := . -}}
{{- range $pod.volumes -}}
{{- if eq .name "kubelet" -}}{{- $_ := set .hostPath "path" $kubelet -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- include "numazones.write" (dict "root" .root "object" $object) -}}
{{- end -}}

{{- /* Give a container its image. Call with container, image, and tag: what an empty tag means. */ -}}
{{- define "numazones.image" -}}
{{- $image := printf "%s:%s" .image.repository (.image.tag | default .tag) -}}
{{- if .image.digest -}}
{{- $image = printf "%s@%s" .image.repository .image.digest -}}
{{- end -}}
{{- $_ := set .container "image" $image -}}
{{- with .image.pullPolicy -}}{{- $_ := set $.container "imagePullPolicy" . -}}{{- end -}}
{{- end -}}
