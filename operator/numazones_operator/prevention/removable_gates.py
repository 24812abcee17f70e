"""Scheduling gates that this operator removes; an event on every other gated pod says why not."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from numazones.cluster.admission_gate import GATE, OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones_client.table import Table
from numazones_operator.events import WARNING, EventPoster
from numazones_operator.faults import of_pod
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import NamespaceLabels

NOT_SERVED = "AdmissionGateNotServed"
"""Reason of the event that tells why nobody opens a gate."""
SWITCHED_OFF = (
    "the operator runs without --admission-gate; apply manifests/components/operator-admission-gate"
)


@dataclass(slots=True)
class RemovableGates:
    """Tells served gates from others."""

    state: ClusterState
    namespaces: Table[NamespaceLabels]
    """Which of them opt in."""
    events: EventPoster
    enabled: bool
    """Whether pods are released at all; if not, events on them say so."""
    _reported: dict[str, str] = field(init=False, default_factory=dict)
    """UID → why its gate is not served, as the event on the pod said."""

    def pods(self) -> Iterator[ClusterPod]:
        """Yield the pods that carry the gate."""
        gated = self.state.gated.values()
        return (pod for pod in list(gated) if GATE in pod.constraints.scheduling_gates)

    def counts(self) -> tuple[int, int]:
        """Return how many gated pods wait for a node that admits them, and how many nobody releases."""
        served = [why is None for _, why in self.state.faults.over(self.pods(), self.objection)]
        return served.count(True), served.count(False)

    def objection(self, pod: ClusterPod) -> str | None:
        """Return why a pod's gate is not released here; None if it is, "" while that is unknown."""
        if not self.enabled:
            return SWITCHED_OFF
        namespace = self.namespaces.get(pod.namespace)
        if namespace is None:
            return ""
        if namespace.labels.get(OPT_IN[0]) == OPT_IN[1]:
            return None
        return f"namespace {pod.namespace} has not opted in; label it {OPT_IN[0]}={OPT_IN[1]}"

    def report_unserved(self) -> None:
        """Post an event, once, on each pod whose gate this operator does not take away."""
        for uid in self._reported.keys() - self.state.gated.keys():
            del self._reported[uid]
        for pod in self.pods():
            with self.state.faults.of(of_pod(pod)):
                objection = self.objection(pod)
                if objection:
                    self.report(pod, objection)

    def report(self, pod: ClusterPod, objection: str) -> None:
        """Post an event on a pod that says why its gate stays, unless one did."""
        if self._reported.get(pod.uid) == objection:
            return
        message = f"the scheduling gate {GATE} is not removed from this pod: {objection}"
        if self.events.post(of_pod(pod), type=WARNING, reason=NOT_SERVED, message=message):
            self._reported[pod.uid] = objection
