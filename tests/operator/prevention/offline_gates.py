"""Admission gates on a mirror that tests feed by hand."""

import asyncio

from numazones.cluster.admission_gate import OPT_IN
from numazones.cluster.cluster import ClusterPod
from numazones_client.table import Table
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.prevention.admission_gates import AdmissionGates
from numazones_operator.prevention.gate_remover import GateRemover
from numazones_operator.prevention.preempting_pods import PreemptingPods
from numazones_operator.prevention.removable_gates import RemovableGates
from tests.operator.prevention.extender.cluster import Cluster


def offline_gates(cluster: Cluster) -> AdmissionGates:
    """Gates that the pods of the namespace ``default`` wait at."""

    def may_go(_pod: ClusterPod, _node: str) -> bool:
        return True

    forecasts = cluster.offline.pipeline.forecasts
    return AdmissionGates(
        cluster.state,
        forecasts,
        cluster.held,
        RemovableGates(cluster.state, _opted_in("default"), cluster.offline.events, enabled=True),
        GateRemover(
            cluster.server,  # type: ignore[arg-type]
            cluster.state,
            cluster.offline.events,
            cluster.offline.metrics,
            wall=cluster.offline.clock,
        ),
        PreemptingPods(cluster.state, forecasts, budgets=None, may_go=may_go),
        may_go=may_go,
        changed=asyncio.Event(),
        timeout=0,
        clock=cluster.offline.clock,
    )


def _opted_in(name: str) -> Table[NamespaceLabels]:
    found: Table[NamespaceLabels] = Table(lambda namespace: namespace.name, lambda *_: None)
    found.put(NamespaceLabels(name, {OPT_IN[0]: OPT_IN[1]}))
    return found
