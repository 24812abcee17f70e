"""Pods at the gate of which nothing is known for long, and the operator's view of nodes all the same."""

from typing import Any

import pytest

from numazones.cluster.admission_gate import GATE
from numazones.prediction.forecast import Forecast
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_operator.prevention.admission_gates import AdmissionGates
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def full_as_last_known(*names: str, unknown: tuple[str, ...] = ()) -> Cluster:
    """Nodes of which 10 CPUs are left on each NUMA node, and nodes never known; no zones are left."""
    cluster = Cluster(*names, *unknown)
    for name in names:
        for position in (1, 2):
            cluster.pod(f"{name}-{position}", cpu=20, nodeName=name)
    for name in unknown:
        node = cluster.state.nodes.get(name)
        assert node is not None
        cluster.state.nodes.remove(node)
        cluster.state.nodes.put(node)
    for zone in list(cluster.state.zones):
        cluster.state.zones.remove(zone)
    cluster.offline.let_pass(61)  # Leases run out, too
    return cluster


def gated(cluster: Cluster, name: str, cpu: int) -> None:
    cluster.pod(name, cpu=cpu, schedulingGates=[{"name": GATE}])


async def after_the_timeout(cluster: Cluster, gates: AdmissionGates) -> list[tuple[str, Any]]:
    """Return the requirements of released pods on nodes, each with its operator."""
    gates.timeout = 60.0
    for _ in range(2):
        await cluster.offline.renew()
        await gates.release()
        cluster.offline.clock.now += 61
    affinity = [patch["spec"].get("affinity", {}).get("nodeAffinity") for _, patch in cluster.server.patches]
    terms = [
        term
        for one in affinity
        for term in (one or {REQUIRED: {"nodeSelectorTerms": []}})[REQUIRED]["nodeSelectorTerms"]
    ]
    return [(field["operator"], field["values"][0]) for term in terms for field in term["matchFields"]]


@pytest.mark.parametrize(("cpu", "released"), [(12, 0), (8, 1)])
async def test_last_known_states_speak_against_a_release_by_timeout(cpu: int, released: int) -> None:
    cluster = full_as_last_known("a", "b")
    gated(cluster, "p", cpu)
    assert await after_the_timeout(cluster, offline_gates(cluster)) == []
    assert len(cluster.server.patches) == released


async def test_a_release_by_timeout_leaves_out_nodes_that_would_reject() -> None:
    cluster = full_as_last_known("a", "b", unknown=("c",))
    gated(cluster, "p", 12)
    assert await after_the_timeout(cluster, offline_gates(cluster)) == [("NotIn", "a"), ("NotIn", "b")]


async def test_timeout_release_names_few_nodes_where_many_would_reject() -> None:
    cluster = full_as_last_known(*(f"n{at}" for at in range(17)), unknown=("c",))
    gated(cluster, "p", 12)
    assert await after_the_timeout(cluster, offline_gates(cluster)) == [("In", "c")]


async def test_a_release_by_timeout_waits_for_exporters_that_run() -> None:
    cluster = full_as_last_known("a", unknown=("c",))
    gated(cluster, "p", 12)
    gates = offline_gates(cluster)
    gates.timeout = 60.0
    for _ in range(3):
        for name in ("a", "c"):
            cluster.offline.beat(name)
        await cluster.offline.renew()
        await gates.release()
        cluster.offline.clock.now += 50
    assert cluster.server.patches == []


def raises(*_: Any, **__: Any) -> Any:
    raise ValueError("no digits")


async def test_pod_that_raises_is_not_released_by_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a", "b")
    gated(cluster, "p", 8)
    monkeypatch.setattr(LiveForecasts, "_renew_kind", raises)
    assert await after_the_timeout(cluster, offline_gates(cluster)) == []
    assert not cluster.server.patches


async def test_extender_takes_no_node_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("a")
    body = cluster.pod("p", cpu=8)
    monkeypatch.setattr(Forecast, "_ask", raises)
    assert (await cluster.filter(body, ["a"]))["NodeNames"] == []
