"""Gauge of the pods that carry the admission gate."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from numazones_operator.placement.admission_gates import AdmissionGates
from numazones_program.gauges import gauge


class GateGauges:
    """Gauge of the pods that carry the admission gate."""

    def __init__(self, gates: AdmissionGates) -> None:
        self._gates = gates
        self._waiting = self._unserved = 0

    def renew(self) -> None:
        """Count."""
        self._waiting, self._unserved = self._gates.gated_pod_counts()

    def families(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge as it was renewed last."""
        yield gauge(
            "numazones_gated_pods",
            "Pods with the admission gate: true where the operator releases them, false where nobody does.",
            ("served",),
            [(("true",), self._waiting), (("false",), self._unserved)],
        )
