"""``doctor --restart``: what a restart of kubelets would do to the pods that run.

The library foresees it (``numazones.kubelet.readmission``); here it becomes findings with their cures.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from kubectl_numazones.doctor.contradictions import contradicted
from kubectl_numazones.doctor.evidence import Evidence
from kubectl_numazones.doctor.findings import Finding, error, hint, warning
from numazones import cpuset
from numazones.apimachinery.quantity import InvalidQuantity
from numazones.cluster.allocated import as_allocated
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet import cures
from numazones.kubelet.config import InvalidConfiguration, KubeletConfiguration, reserved_in_all
from numazones.kubelet.kept_memory import in_bytes
from numazones.kubelet.machine import Machine
from numazones.kubelet.memory_manager import matching_reservations
from numazones.kubelet.readmission import Readmission, Restart, RunningPod, Uncertainty, restart
from numazones.kubelet.state_validation import Refusal
from numazones.whatif import settings as kubelet_settings
from numazones.wording import pluralize


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """Settings of a kubelet that starts again."""

    settings: kubelet_settings.Settings
    """Settings that differ from today's; empty: none does."""
    file: object | None = None
    """A whole KubeletConfiguration, which the settings are applied to; None: today's."""
    reserved_memory: bool = False
    """Whether to compute the ``reservedMemory`` that goes with it."""
    reboot: bool = False
    """Whether the machine is rebooted, after which no container runs."""

    def of(self, before: KubeletConfiguration) -> KubeletConfiguration:
        """Return the configuration of a kubelet of this release.

        Raises:
            InvalidConfiguration, InvalidQuantity: a field of the file has the wrong shape.
            InvalidSetting: a setting does not fit the configuration.
        """
        config = before
        if self.file is not None:
            config = replace(
                KubeletConfiguration.from_api(cast(Mapping[str, Any], self.file)),
                release=before.release,
                workload_partitioning=before.workload_partitioning,
            )
        return kubelet_settings.apply(config, self.settings) if self.settings else config


@dataclass(frozen=True, slots=True)
class NodeRestart:
    """Forecast for one node."""

    node: str
    findings: tuple[Finding, ...] = ()
    admitted: int = 0
    """Pods that the kubelet would admit again, whatever chance has it do."""
    pods: int = 0
    starts: bool = True
    """Whether a kubelet would start with the configuration at all."""
    unknown: str = ""
    """Why nothing can be foreseen."""

    @property
    def summary(self) -> str:
        """One line for people."""
        if self.unknown:
            return f"{self.node}: cannot be predicted: {self.unknown}"
        if not self.starts:
            return f"{self.node}: no kubelet would start with this configuration"
        return f"{self.node}: {self.admitted} of {pluralize(self.pods, 'pod')} would be admitted again"


def foresee(evidence: Evidence, names: Sequence[str], change: RestartSettings) -> list[NodeRestart]:
    """Foresee a restart of the kubelets of these nodes; of all nodes where no name is given.

    Raises:
        NotThere: there is no node of a name.
    """
    nodes = [evidence.seen.node(name) for name in names or sorted(evidence.seen.situation.cluster.nodes)]
    bodies = {str(body["metadata"].get("uid") or ""): body for body in evidence.of("Pod")}
    return [_of_node(evidence, node, bodies, change) for node in nodes]


def outlook(evidence: Evidence, name: str) -> tuple[Refusal, ...] | None:
    """Return why the kubelet of a node whose sources contradict each other would not start again.

    None is returned where nothing can be foreseen.
    """
    node, found = evidence.seen.node(name), contradicted(name, evidence.of("NUMAZone"))
    if found is None:
        return None
    return restart(node.info(found.state, beside=""), (), refused=found.refused).refusals


def _running(body: Mapping[str, Any]) -> Iterator[str]:
    status = body.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            if (container.get("state") or {}).get("running") is not None:
                yield str(container.get("name"))


def _of_node(
    evidence: Evidence, node: ClusterNode, bodies: Mapping[str, Mapping[str, Any]], change: RestartSettings
) -> NodeRestart:
    state, why = node.state, node.why_no_state
    found = contradicted(node.name, evidence.of("NUMAZone")) if state is None else None
    if found is not None:
        state = found.state
    if state is None or node.approximate:
        reason = why.message if why else "only amounts are known, not which pods hold them"
        return NodeRestart(node.name, unknown=reason)
    pods = [pod for pod in node.pods.values() if not pod.stopped]
    unread = [pod for pod in pods if pod.admission is None]
    try:
        known = [_running_pod(pod, bodies.get(pod.uid, {})) for pod in pods if pod.admission is not None]
        if change.reboot:
            known = [replace(pod, running=frozenset()) for pod in known]
        config = change.of(state.config)
        said = restart(node.info(state, beside=""), known, config, refused=found.refused if found else ())
    except (InvalidConfiguration, InvalidQuantity) as refused:
        cure = refused.cure if isinstance(refused, InvalidConfiguration) else cures.CORRECT_CONFIGURATION
        why_not = _refused(node.name, [Refusal(str(refused), cure=cure)])
        return NodeRestart(node.name, tuple(why_not), starts=False)
    except NumazonesError as problem:
        return NodeRestart(node.name, unknown=str(problem))
    findings = [
        *_findings(node.name, said, reboot=change.reboot),
        *(_unread(node.name, pod) for pod in unread),
    ]
    if change.reserved_memory:
        findings.append(_reserved_memory(node.name, config, state.machine))
    admitted = sum(one.admitted for one in said.readmissions)
    starts = all(refusal.file for refusal in said.refusals)
    return NodeRestart(node.name, tuple(findings), admitted, len(pods), starts)


def _running_pod(pod: ClusterPod, body: Mapping[str, Any]) -> RunningPod:
    allocated = as_allocated(body)
    info = pod.info if allocated is body else ClusterPod.from_api(allocated).info
    return RunningPod(pod.full_name, info, pod.created, frozenset(_running(body)))


def _reserved_memory(node: str, config: KubeletConfiguration, machine: Machine) -> Finding:
    """Say which ``reservedMemory`` goes with a configuration."""
    found = matching_reservations(config, machine)
    if found is None:
        return warning(
            node,
            "the reservedMemory that it needs is unknown, because its NUMAZones do not show what is reserved",
            "pass the whole configuration with --kubelet-config",
        )
    total = reserved_in_all(found)
    kept = str(config.kept_memory) or "what its kubelet reserves now"
    entries = ", ".join(
        f'{{numaNode: {entry.numa}, limits: {{memory: "{amount.value()}"}}}}'
        for entry in found
        for _, amount in entry.limits
    )
    return hint(
        node,
        f"reservedMemory must add up to {in_bytes(total)}: {kept}",
        f"reservedMemory: [{entries}]",
    )


def _refused(node: str, refusals: Iterable[Refusal]) -> Iterator[Finding]:
    for refusal in refusals:
        cure = refusal.cure_on(node)
        if refusal.file:
            cure += "; if the pods stay there, the lines below show what happens to each"
        yield error(node, f"its kubelet would not start: {refusal.message}", cure)


def _findings(node: str, said: Restart, *, reboot: bool) -> Iterator[Finding]:
    yield from _refused(node, said.refusals)
    if stuck := said.stuck:
        message = f"its kubelet would not get beyond {stuck.name}: {stuck.reason}: {stuck.message}"
        yield error(node, message, stuck.cure or cures.CORRECT_CONFIGURATION)
    cure = "drain the node first" if said.refusals or reboot else _RECREATE
    for one in said.rejected:
        yield error(
            f"{one.name} on {node}",
            f"its kubelet would reject it and stop its containers: {one.reason}: {one.message}",
            cure,
        )
    for one in said.uncertain:
        yield warning(f"{one.name} on {node}", _uncertain(one, reboot=reboot), cure)
    for one in said.moved:
        yield warning(f"{one.name} on {node}", _moved(one), "drain the node first")


_RECREATE = "delete the pod first, so that its owner recreates it while the node's kubelet still runs"
_CHANCE = {
    Uncertainty.ORDER: "depending on the order in which it admits pods that were created in the same second",
    Uncertainty.PLUGINS: "depending on when device plugins register again",
}


def _uncertain(one: Readmission, *, reboot: bool) -> str:
    chance = _CHANCE[one.chance] if one.chance is not None else ""
    if reboot and one.chance is Uncertainty.PLUGINS:
        return (
            "its kubelet rejects it unless the device plugin that it needs, usually itself a pod, has "
            f"registered by then: {one.reason}: {one.message}"
        )
    return f"its kubelet may reject it and stop its containers, {chance}: {one.reason}: {one.message}"


def _moved(one: Readmission) -> str:
    before, after = one.cpus or (0, 0)
    if one.chance is not None:
        return (
            f"its kubelet may move it from CPUs {cpuset.format(before)} while it runs, {_CHANCE[one.chance]}"
        )
    if not after:
        return f"it would run in the shared pool, no longer on its exclusive CPUs {cpuset.format(before)}"
    if not before:
        return f"it would get exclusive CPUs {cpuset.format(after)}; now it runs in the shared pool"
    return f"it would be moved from CPUs {cpuset.format(before)} to {cpuset.format(after)} while it runs"


def _unread(node: str, pod: ClusterPod) -> Finding:
    return warning(
        f"{pod.full_name} on {node}",
        f"what happens to it cannot be predicted: {pod.problem}",
        "correct the pod's manifest, and try again",
    )
