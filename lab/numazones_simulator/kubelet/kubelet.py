"""One simulated kubelet: the pods it runs, and its decision about each new one.

No I/O happens here; ``agent`` connects a kubelet to the API server and to its files. All checks are made in
the kubelet's order (``numazones.kubelet.node_admission``). What a pod was given that the node rejects in the
end stays on record until the next pod comes, as in a real kubelet's state files. A kubelet that starts again
makes the checks that ``doctor --restart`` foresees (``numazones.kubelet.state_validation``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet import admission
from numazones.kubelet.checkpoint_values import (
    CPUManagerCheckpoint,
    DeviceManagerCheckpoint,
    MemoryManagerCheckpoint,
)
from numazones.kubelet.demand import PodLevel
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node
from numazones.kubelet.pod import Pod
from numazones.kubelet.restart import node_from_checkpoints
from numazones.kubelet.state_validation import Refusal, refusals_of_files
from numazones_simulator.node_spec import NodeSpec, node_object


@dataclass(frozen=True, slots=True)
class PodRejection:
    """Reason why the kubelet rejects a pod: ``status.reason``, and its message without the usual prefix."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision of the kubelet about a pod."""

    qos_class: str
    rejection: PodRejection | None = None
    """None: the pod runs."""
    preempted: tuple[Pod, ...] = ()
    """Pods that were ended to make room for it."""


class NoDecision(NumazonesError):
    """The kubelet comes to no decision, such as where a real one would crash; the message says why."""


class RefusesToStart(NumazonesError):
    """The kubelet ends while it starts; the message is its own."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        """Keep which files it does not take."""
        self.refusals = tuple(refusals)
        super().__init__("; ".join(refusal.message for refusal in self.refusals))


@dataclass(frozen=True, slots=True)
class StateFiles:
    """Content of a kubelet's state files; None: there is no such file."""

    cpus: CPUManagerCheckpoint | None = None
    memory: MemoryManagerCheckpoint | None = None
    devices: DeviceManagerCheckpoint = field(default_factory=DeviceManagerCheckpoint)


class SimulatedKubelet:
    """Holds a node and admits pods to it, one by one.

    Raises:
        InvalidConfiguration: a kubelet would not start with the configuration on this machine.
    """

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.node: Node = spec.empty_node()
        """What the next pod is decided on."""
        self.recorded: Node = self.node
        """What the state files show until then."""
        self._scheduled = ClusterNode.from_api(node_object(spec, now=""))
        self._pods: dict[str, Pod] = {}

    @classmethod
    def start(
        cls, spec: NodeSpec, files: StateFiles, pods: Iterable[Mapping[str, Any]]
    ) -> tuple[Self, dict[str, Verdict]]:
        """Start a kubelet from state files, and admit the pods that run on its node again.

        Args:
            spec: the node as it is now; machine and configuration may have changed.
            files: what the files hold.
            pods: as the API server serves them; the oldest comes first.

        Returns:
            The kubelet, and uid → what it decided.

        Raises:
            RefusesToStart: it does not take a file.
            InvalidConfiguration: it does not start with the configuration on this machine.
        """
        kubelet = cls(spec)
        managers = kubelet.node.kubelet
        if refusals := refusals_of_files(managers, files.cpus, files.memory):
            raise RefusesToStart(refusals)
        fresh = kubelet.node
        restored = node_from_checkpoints(
            spec.machine,
            managers.config,
            spec.devices,
            cpus=files.cpus if files.cpus is not None and files.cpus.default else cpu_manager_state(fresh),
            memory=files.memory or memory_manager_state(fresh),
            held=files.devices,
        )
        kubelet.node = kubelet.recorded = restored
        ordered = sorted(pods, key=lambda body: str(body["metadata"].get("creationTimestamp") or ""))
        verdicts = {str(body["metadata"]["uid"]): kubelet.admit(body) for body in ordered}
        for uid in kubelet.node.pods - kubelet._pods.keys():
            kubelet.remove(uid)  # it ended while the kubelet was down
        return kubelet, verdicts

    @property
    def pods(self) -> list[Pod]:
        """The active pods, in order of admission."""
        return list(self._pods.values())

    def runs(self, uid: str) -> bool:
        """Return whether a pod was admitted and has not been removed."""
        return uid in self._pods

    def admit(self, body: Mapping[str, Any]) -> Verdict:
        """Decide on a pod as the API server serves it; if admitted, it is active from now on.

        Raises:
            Undecidable: the pod makes no sense, or the kubelet would not decide.
        """
        pod = ClusterPod.from_api(body)
        if pod.admission is None:
            raise NoDecision(f"pod {pod.full_name}: {pod.problem}")
        try:
            decision = admit_to_node(self._scheduled.info(self.node, beside=pod.uid), pod.info)
        except NumazonesError as error:
            raise NoDecision(f"pod {pod.full_name}: the kubelet reaches no decision: {error}") from error
        qos_class = pod.admission.qos.value
        self.node, self.recorded = decision.state, decision.recorded
        if not decision.admitted:
            return Verdict(qos_class, PodRejection(decision.reason, decision.message))
        preempted = tuple(self._pods.pop(uid) for uid in decision.preempted)
        for victim in preempted:
            self._scheduled = self._scheduled.without_pod(victim.uid)
        self._scheduled = self._scheduled.with_pod(pod)
        self._pods[pod.uid] = pod.admission
        return Verdict(qos_class, preempted=preempted)

    def set_device_health(self, resource: str, device: str, *, healthy: bool) -> None:
        """A device plugin reports a device as faulty, or as mended."""
        devices = tuple(
            replace(item, healthy=healthy) if item.id == device else item
            for item in self.spec.devices[resource]
        )
        self.spec = replace(self.spec, devices={**self.spec.devices, resource: devices})
        self.node = self.node.with_devices(self.spec.devices)
        self.recorded = self.recorded.with_devices(self.spec.devices)
        allocatable = ClusterNode.from_api(node_object(self.spec, now="")).allocatable
        self._scheduled = replace(self._scheduled, allocatable=allocatable)

    def remove(self, uid: str) -> bool:
        """A pod has ended and holds nothing any more; return whether it was active."""
        self.node = admission.remove(self.node, uid)
        self.recorded = admission.remove(self.recorded, uid)
        self._scheduled = self._scheduled.without_pod(uid)
        return self._pods.pop(uid, None) is not None


def cpu_manager_state(node: Node) -> CPUManagerCheckpoint:
    """The CPU manager's state of a node."""
    return CPUManagerCheckpoint(
        node.config.cpu_manager_policy,
        node.cpus.default,
        node.cpus.assignments,
        node.cpus.pods,
        pod_level=node.config.pod_level is PodLevel.MANAGED,
    )


def memory_manager_state(node: Node) -> MemoryManagerCheckpoint:
    """The memory manager's state of a node."""
    return MemoryManagerCheckpoint(
        policy=node.config.memory_manager_policy,
        machine=node.machine_state,
        entries=node.memory.assignments,
        pod_entries=node.memory.pods,
        pod_level=node.config.pod_level is PodLevel.MANAGED,
    )
