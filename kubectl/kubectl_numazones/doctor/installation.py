"""Checks of the installation: definitions, rights, exporters, clocks, operator, gates, other writers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from kubectl_numazones.doctor import restart
from kubectl_numazones.doctor.contradictions import DISAGREE
from kubectl_numazones.doctor.evidence import DEFINITION, RIGHTS, Evidence
from kubectl_numazones.doctor.exporter_pods import ExporterPods, namespace_of, trouble_of
from kubectl_numazones.doctor.findings import Finding, NotChecked, Severity, error, hint, warning
from kubectl_numazones.doctor.reading_cures import CURES
from kubectl_numazones.reading.files import Object
from kubectl_numazones.stuck import gated_pods
from numazones.api import crd
from numazones.api.meta import NODE_LABEL, VERSION
from numazones.api.numazone import CPUS_EXCLUSIVE, KUBELET_DECIDES
from numazones.api.workload_partitioning import CONSISTENT
from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import UNDECIDED
from numazones.cluster.dump import OBJECTS_MISSING, OPTION_UNKNOWN
from numazones.kubelet import cures
from numazones.kubelet.state_validation import RESTART_FAILS
from numazones.prediction.forecast import relevant
from numazones.wording import pluralize, some_of

_OPERATOR = gated_pods.OPERATOR
_SKEW = timedelta(seconds=5)
"""Clocks that differ by less are taken to agree: some times are whole seconds, and requests take time."""
_LOOP = 2


def definitions(evidence: Evidence) -> Iterator[Finding]:
    """Every kind of the group is defined, in the version and with the fields that this program knows."""
    installed = {item["metadata"]["name"]: item for item in evidence.of(DEFINITION)}
    for kind in crd.KINDS:
        name, own = kind.RESOURCE.crd_name, crd.crd(kind)["spec"]["versions"][0]
        if name not in installed:
            severity = Severity.ERROR if kind.RESOURCE.plural == "numazones" else Severity.WARNING
            yield Finding(severity, (name,), "is not defined", "kubectl apply -k crds")
            continue
        versions = (installed[name].get("spec") or {}).get("versions") or ()
        served = next((it for it in versions if it.get("name") == VERSION and it.get("served")), None)
        if served is None:
            yield error(name, f"does not serve version {VERSION}", "kubectl apply -k crds")
            continue
        schemas = (it.get("schema", {}).get("openAPIV3Schema", {}) for it in (own, served))
        wanted, there = (set(_fields(schema)) for schema in schemas)
        if wanted - there:
            yield warning(
                name,
                f"is not the version that this program expects: it lacks {some_of(sorted(wanted - there))}, "
                "which the API server therefore drops",
                "kubectl apply -k crds",
            )


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, part in (schema.get("properties") or {}).items():
        yield f"{path}{name}"
        yield from _fields(part, f"{path}{name}.")
    if isinstance(schema.get("items"), Mapping):
        yield from _fields(schema["items"], f"{path.removesuffix('.')}[].")


def access(evidence: Evidence) -> Iterator[Finding]:
    """The user may read what the commands read."""
    if evidence.denied is None:
        raise NotChecked(f"your permissions are unknown: {evidence.unseen[RIGHTS]}")
    for right in evidence.denied:
        verb, _, resource = right.partition(" ")
        yield warning(
            f"{verb} {resource}",
            f"you lack this permission, so answers omit what it would show (kubectl auth can-i {right})",
            f"ask for a ClusterRole that allows {verb} on {resource}",
        )
    for namespace in evidence.unrecordable:
        yield hint(
            "get pods/proxy",
            f"you lack this permission in namespace {namespace}, where exporters serve recordings; "
            "kubectl numazones record needs it to reach them (kubectl auth can-i get pods "
            f"--subresource=proxy -n {namespace})",
            f"kubectl create rolebinding -n {namespace} --role=numazones-recorder --user=YOU recorders",
        )


# Exporters


def zones(evidence: Evidence) -> Iterator[Finding]:
    """There are zones at all, without which no command has an answer."""
    if evidence.of("NUMAZone"):
        return
    if why := evidence.unseen.get("NUMAZone"):
        yield error("NUMAZones", f"cannot be read: {why}", "fix this first: all answers depend on NUMAZones")
        return
    yield error(
        "NUMAZones",
        "there are none, so nothing is known about any node",
        "install the exporter: kubectl apply -k crds; kubectl apply -k manifests/exporter; for a dump, "
        "include numazones: kubectl get nodes,pods,numazones -A -o json",
    )


def exporters(evidence: Evidence) -> Iterator[Finding]:
    """Every node's zones are published, complete, readable and vouched for."""
    pods = ExporterPods(evidence)
    published = {str((zone.get("spec") or {}).get("nodeName")) for zone in evidence.of("NUMAZone")}
    for node in evidence.seen.situation.cluster.nodes.values():
        if node.os != "linux":
            continue
        if node.name not in published:
            selector = pods.selector_that_leaves_out(node)
            if selector:
                yield hint(
                    node.name,
                    f"no NUMAZones are published: the exporter's node selector {selector} excludes the node, "
                    "so its kubelet's decisions are unknown",
                    "if this is not intended, label the node, or change the selector (chart value "
                    "exporter.nodeSelector)",
                )
                continue
            why, cure = pods.why_silent(node)
            yield error(node.name, f"no NUMAZones are published: {why}", cure)
        elif node.unknown is not None and node.unknown.reason == OPTION_UNKNOWN:
            yield error(
                node.name,
                node.unknown.message,
                cures.UNKNOWN_OPTION,
            )
        elif node.unknown is not None and node.unknown.reason != OBJECTS_MISSING:
            why, cure = pods.why_silent(node)
            yield error(node.name, f"its NUMAZones cannot be used: {node.unknown.message}", cure)


def nodes(evidence: Evidence) -> Iterator[Finding]:
    """Every pod that is bound is bound to a node that is there; others count nowhere."""
    known = evidence.seen.situation.cluster.nodes
    lost: Counter[str] = Counter()
    for pod in evidence.of("Pod"):
        name = str((pod.get("spec") or {}).get("nodeName") or "")
        ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        lost[name] += bool(name) and name not in known and not ended
    for name in sorted(+lost):
        yield warning(
            name,
            f"is not a node in the cluster, so its pods are not counted: {pluralize(lost[name], 'pod')}",
            "wait a minute: kube-controller-manager deletes pods whose Node is gone; if they stay, "
            f"list them with kubectl get pods -A --field-selector spec.nodeName={name}; a dump must "
            "include nodes",
        )


def leases(evidence: Evidence) -> Iterator[Finding]:
    """Every exporter vouches for its zones: its Lease is there and was renewed in time."""
    pods = ExporterPods(evidence)
    by_node = {_node_of(lease): lease.get("spec") or {} for lease in _leases(evidence)}
    for name in sorted({str((zone.get("spec") or {}).get("nodeName")) for zone in evidence.of("NUMAZone")}):
        node = evidence.seen.situation.cluster.nodes.get(name)
        if node is None:
            yield warning(
                name,
                "has NUMAZones, but is not a node in the cluster",
                f"kubectl delete numazones -l {NODE_LABEL}={name}",
            )
            continue
        why, cure = pods.why_silent(node)
        if name not in by_node:
            yield error(name, f"no Lease confirms its NUMAZones: {why}", cure)
            continue
        spec = by_node[name]
        age = evidence.now - timestamp.parse(spec.get("renewTime") or "1970-01-01T00:00:00Z")
        allowed = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
        if age > allowed:
            yield error(
                name,
                f"its NUMAZones are stale: the exporter last confirmed them at {spec.get('renewTime')}, "
                f"{_seconds(age)} ago ({_seconds(allowed)} are allowed): {why}",
                cure,
            )


def readings(evidence: Evidence) -> Iterator[Finding]:
    """The exporters could read everything, and what they read does not contradict."""
    for zone in evidence.of("NUMAZone"):
        node = str((zone.get("spec") or {}).get("nodeName"))
        for condition in (zone.get("status") or {}).get("conditions") or ():
            if condition.get("status") != "True":
                yield from _reading(evidence, node, condition)
    for item in evidence.seen.situation.cluster.nodes.values():
        if item.unknown is not None and item.unknown.reason == UNDECIDED:
            cure = "let only one of them place pods, and remove what is left of the other"
            yield error(item.name, item.unknown.message, cure)
        elif item.unknown is not None and item.unknown.reason == OBJECTS_MISSING:
            cure = (
                "include these objects in the dump; on a live cluster, ask for a role that may read them "
                "(manifests/roles)"
            )
            yield warning(item.name, item.unknown.message, cure)


def _reading(evidence: Evidence, node: str, condition: Mapping[str, Any]) -> Iterator[Finding]:
    said = condition.get("message") or "no message"
    reason = str(condition.get("reason"))
    cure = CURES.get(reason, "see the exporter's log there")
    if condition.get("type") == CONSISTENT:
        yield error(node, *_contradiction(evidence, node, str(said), cure))
    elif condition.get("type") == CPUS_EXCLUSIVE:
        yield error(node, said, cure)
    elif condition.get("type") == KUBELET_DECIDES:
        return  # the check of settings says so from the node's shape
    elif reason != DISAGREE:  # then Consistent tells more
        severity = Severity.ERROR if condition.get("status") == "False" else Severity.WARNING
        yield Finding(severity, (node,), f"{reason}: {said}", cure)


def _contradiction(evidence: Evidence, node: str, said: str, cure: str) -> tuple[str, str]:
    """Return what disagrees, and the cure after which the kubelet starts."""
    message = f"sources disagree: {said}"
    if node not in evidence.seen.situation.cluster.nodes:
        return message, cure
    refusals = restart.outlook(evidence, node)
    if refusals is None:
        return message, cure
    if not refusals:
        return message, cures.restart(f"the kubelet of {node}")
    for refusal in refusals:
        if refusal.message not in message:
            message += f"; {RESTART_FAILS}{refusal.message}"
    return message, "; ".join(dict.fromkeys(refusal.cure_on(node) for refusal in refusals))


def clocks(evidence: Evidence) -> Iterator[Finding]:
    """The exporters' clocks agree with the API server's, by which a Lease's fields carry their time."""
    compared = 0
    for lease in _leases(evidence):
        renewed = timestamp.parse((lease.get("spec") or {}).get("renewTime") or "1970-01-01T00:00:00Z")
        written = max((entry.get("time") or "" for entry in _managed_fields(lease)), default="")
        if not written:
            continue
        compared += 1
        skew = renewed - timestamp.parse(written)
        if abs(skew) > _SKEW:
            off = f"{_seconds(abs(skew))} {'ahead of' if skew > timedelta() else 'behind'}"
            yield warning(
                _node_of(lease),
                f"its clock is {off} the API server's: programs that see its Lease for the first time "
                "misjudge its age",
                "synchronise the node's clock (chrony, systemd-timesyncd)",
            )
    if not compared and evidence.of("Lease"):
        raise NotChecked("the Leases carry no managed fields; dump with --show-managed-fields")


# Operator and gates


def operator(evidence: Evidence) -> Iterator[Finding]:
    """An operator runs."""
    running = list(evidence.pods_of(_OPERATOR))
    if not running and not _leads(evidence):
        yield hint(
            _OPERATOR,
            "no operator is running, so nothing is predicted or recommended, and gated pods are not released",
            "kubectl apply -k manifests/operator",
        )
    for pod in running:
        trouble = trouble_of(pod)
        if trouble:
            name = f"{namespace_of(pod)}/{pod['metadata']['name']}"
            cure = f"kubectl describe pod -n {namespace_of(pod)} {pod['metadata']['name']}"
            yield error(name, trouble, cure)


def gates(evidence: Evidence) -> Iterator[Finding]:
    """Pods that wait at the gate are served, and loops of rejections have one."""
    opted = gated_pods.opted_in(evidence.of("Namespace"))
    operators = list(evidence.pods_of(_OPERATOR))
    for pod in filter(gated_pods.is_gated, evidence.of("Pod")):
        trouble = gated_pods.trouble(namespace_of(pod), opted, operators, leads=_leads(evidence))
        if trouble is not None:
            name = f"{namespace_of(pod)}/{pod['metadata']['name']}"
            yield error(name, f"is waiting at the gate {GATE}: {trouble.why}", trouble.cure)
    yield from _loops(evidence, opted)


def _leads(evidence: Evidence) -> bool:
    """Return whether an operator holds its Lease, wherever it runs."""
    leases = (lease for lease in evidence.of("Lease") if lease["metadata"]["name"] == _OPERATOR)
    return any(gated_pods.is_live(lease, evidence.now) for lease in leases)


def _loops(evidence: Evidence, opted_in: set[str]) -> Iterator[Finding]:
    rejected = Counter(
        (pod.namespace, pod.controller.kind, pod.controller.name)
        for pod in evidence.seen.ended
        if pod.reason and not pod.acknowledged and pod.controller is not None and relevant(pod)
    )
    for (namespace, kind, name), count in sorted(rejected.items()):
        if count >= _LOOP and namespace not in opted_in:
            pods = pluralize(count, "pod")
            yield warning(
                f"{namespace}/{name}",
                f"kubelets have rejected {pods} of this {kind}, which keeps creating replacements",
                f"let its pods wait at the gate: kubectl label namespace {namespace} "
                f"{'='.join(OPT_IN)}, and add schedulingGates [{{name: {GATE}}}] to its template",
            )


def writers(evidence: Evidence) -> Iterator[Finding]:
    """Every NodeResourceTopology has one writer."""
    topologies = evidence.of("NodeResourceTopology")
    if topologies and not any(_managed_fields(item) for item in topologies):
        raise NotChecked("the objects carry no managed fields; dump with --show-managed-fields")
    for item in topologies:
        managers = sorted(
            {
                str(entry.get("manager"))
                for entry in _managed_fields(item)
                if not set(entry.get("fieldsV1") or {}) <= {"f:metadata"}
            }
        )
        if len(managers) > 1:
            yield error(
                item["metadata"]["name"],
                f"the NodeResourceTopology is written by {' and '.join(managers)}, which overwrite each "
                "other's values",
                "let only one program write it: remove noderesourcetopologies from the exporter's --publish, "
                "or stop the other",
            )


def _leases(evidence: Evidence) -> Iterator[Object]:
    for lease in evidence.of("Lease"):
        if _node_of(lease):
            yield lease


def _node_of(lease: Object) -> str:
    return str((lease["metadata"].get("labels") or {}).get(NODE_LABEL) or "")


def _managed_fields(item: Object) -> list[Mapping[str, Any]]:
    return list(item["metadata"].get("managedFields") or ())


def _seconds(span: timedelta) -> str:
    return f"{round(span.total_seconds())} s"
