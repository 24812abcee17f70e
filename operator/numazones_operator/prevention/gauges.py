"""Gauges of the pods that wait: at the admission gate, and for which scheduler."""

from collections import Counter
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily

from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.prevention.pods_with_lost_nodes import PodsWithLostNodes
from numazones_program.gauges import gauge


@dataclass(frozen=True, slots=True)
class GateGauges:
    """Gauges of the pods that carry the admission gate, or were released from it in vain."""

    gates: AdmissionGates
    lost: PodsWithLostNodes

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        waiting, unserved = self.gates.served.counts()
        return [
            gauge(
                "numazones_gated_pods",
                "Pods with the scheduling gate numazones.io/admission, by whether the operator releases "
                "them: true or false.",
                ("served",),
                [(("true",), waiting), (("false",), unserved)],
            ),
            gauge(
                "numazones_released_pods_without_nodes",
                "Pods that have no node because all nodes that the gate released them to are now gone, "
                "cordoned or tainted.",
                (),
                [((), self.lost.count())],
            ),
        ]


@dataclass(frozen=True, slots=True)
class WaitingPodsGauges:
    """Gauge of the pods that wait for a scheduler."""

    state: ClusterState

    def families(self) -> list[GaugeMetricFamily]:
        """Count."""
        asked = self.state.faults.over(self.state.pending.values(), lambda pod: pod.constraints)
        waiting = Counter(found.scheduler_name for _, found in asked if not found.scheduling_gates)
        return [
            gauge(
                "numazones_waiting_pods",
                "Pods with NUMA requirements that have neither a node nor a scheduling gate, by scheduler.",
                ("scheduler",),
                (((name,), count) for name, count in ({"default-scheduler": 0} | waiting).items()),
            )
        ]
