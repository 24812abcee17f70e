"""Gauges of the pods that wait: at the admission gate, and for which scheduler."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.prevention.pods_with_lost_nodes import PodsWithLostNodes
from numazones_program.gauges import gauge


class GateGauges:
    """Gauges of the pods that carry the admission gate, or were released from it in vain."""

    def __init__(self, gates: AdmissionGates, lost: PodsWithLostNodes) -> None:
        self._gates = gates
        self._lost = lost
        self._waiting = self._unserved = self._stranded = 0

    def renew(self) -> None:
        """Count."""
        self._waiting, self._unserved = self._gates.served.counts()
        self._stranded = self._lost.count()

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges as they were renewed last."""
        yield gauge(
            "numazones_gated_pods",
            "Pods with the admission gate, by whether the operator releases them: true or false.",
            ("served",),
            [(("true",), self._waiting), (("false",), self._unserved)],
        )
        yield gauge(
            "numazones_released_pods_without_nodes",
            "Pods without a node that the gate released only to nodes that are now gone, cordoned or "
            "tainted.",
            (),
            [((), self._stranded)],
        )


class WaitingPodsGauges:
    """Gauge of the pods that wait for a scheduler."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiting: Counter[str] = Counter()

    def renew(self) -> None:
        """Count."""
        asked = self._state.faults.over(self._state.pending.values(), lambda pod: pod.constraints)
        self._waiting = Counter(found.scheduler_name for _, found in asked if not found.scheduling_gates)

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge as it was renewed last."""
        waiting = {"default-scheduler": 0} | self._waiting
        yield gauge(
            "numazones_waiting_pods",
            "Pods with NUMA requirements that have neither a node nor a gate, by scheduler.",
            ("scheduler",),
            (((name,), count) for name, count in waiting.items()),
        )
