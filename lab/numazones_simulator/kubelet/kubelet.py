"""One simulated kubelet: the pods it runs, and its decision about each new one.

No I/O happens here; ``agent`` connects a kubelet to the API server and to its files. All checks are made in
the kubelet's order (``numazones.kubelet.node_admission``). What a pod was given that the node rejects in the
end stays on record until the next pod comes, as in a real kubelet's state files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet import admission
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node
from numazones.kubelet.pod import Pod
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
            Undecidable: the pod makes no sense, or the kubelet would not get to a verdict.
        """
        pod = ClusterPod.from_api(body)
        if pod.admission is None:
            raise NoDecision(f"pod {pod.full_name}: {pod.problem}")
        try:
            decision = admit_to_node(self._scheduled.info(self.node, beside=pod.uid), pod.info)
        except NumazonesError as error:
            raise NoDecision(f"pod {pod.full_name}: the kubelet does not decide: {error}") from error
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
