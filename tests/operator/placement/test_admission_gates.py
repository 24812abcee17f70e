"""The scheduling gate: who is released, when, and to which nodes; the rule of one slot for one pod."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from numazones_client.resources import EVENTS, LEASES, NAMESPACES, PODS
from numazones_client.table import Table
from numazones_operator.mirror.decoding import NamespaceLabels
from numazones_operator.placement.admission_gates import GATE, OPT_IN, AdmissionGates, release_patch
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from tests.operator.closed_loop import OPTIONS, Loop, closed_loop, eventually, metrics, pod_body
from tests.operator.placement.extender.cluster import Cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = [("a", "host-a"), ("b", "host-b")]
ONLY = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-a", "host-b"]}


def gated_pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": GATE}], **spec}}


def value(patch: list[dict[str, Any]], path: str) -> Any:
    (found,) = [item["value"] for item in patch if item["path"] == path and item["op"] != "test"]
    return found


def terms(patch: list[dict[str, Any]]) -> Any:
    return value(patch, "/spec/affinity")["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def test_a_pod_without_affinity_gets_one_term_per_node() -> None:
    patch = release_patch(gated_pod(), NODES, now="now")
    assert [term["matchFields"][0]["values"] for term in terms(patch)] == [["a"], ["b"]]
    assert value(patch, "/spec/schedulingGates") == []


def test_existing_terms_only_become_stricter_as_kubernetes_demands() -> None:
    old = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": [{"key": "x"}]}, {}]
    affinity = {
        "podAffinity": {"kept": True},
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": old}, "preferred": []},
    }
    patch = release_patch(gated_pod(affinity=affinity), NODES, now="now")
    assert terms(patch) == [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}, ONLY]},
        {"matchFields": [{"key": "x"}], "matchExpressions": [ONLY]},
        {},
    ]
    assert value(patch, "/spec/affinity")["podAffinity"] == {"kept": True}


def test_other_gates_stay_and_a_pod_without_ours_is_left_alone() -> None:
    pod = {"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": "other"}, {"name": GATE}]}}
    assert value(release_patch(pod, NODES, now="now"), "/spec/schedulingGates") == [{"name": "other"}]
    pod["spec"] = {"schedulingGates": [{"name": "other"}]}
    assert release_patch(pod, NODES, now="now") == []


def test_the_patch_applies_to_the_pod_that_was_looked_at_and_no_other() -> None:
    tests = {
        item["path"]: item["value"]
        for item in release_patch(gated_pod(), [], now="now")
        if item["op"] == "test"
    }
    assert tests == {"/metadata/uid": "u", "/spec/schedulingGates": [{"name": GATE}]}


def test_released_after_the_time_out_a_pod_may_go_anywhere() -> None:
    assert not [
        item for item in release_patch(gated_pod(), [], now="now") if item["path"] == "/spec/affinity"
    ]


async def opt_in(loop: Loop) -> None:
    await loop.client.patch(NAMESPACES, "default", {"metadata": {"labels": {OPT_IN[0]: OPT_IN[1]}}})


async def waiting_pods(loop: Loop) -> list[str]:
    pods = await loop.client.list(PODS, namespace="default")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("schedulingGates")]


@pytest.mark.slow
async def test_ten_pods_are_never_released_for_two_slots(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        # Two zones with 30 CPUs each: two pods of 20 fit, one in each.
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await opt_in(loop)
        operator = await loop.start_operator(admission_gate=True)
        loop.start_scheduler()
        for number in range(10):
            await loop.create_pod(f"p{number}", cpu=20, schedulingGates=[{"name": GATE}])
        await eventually(lambda: _count(loop, 8))
        await asyncio.sleep(2)
        assert len(await waiting_pods(loop)) == 8
        # As soon as one ends, the next may go, and is admitted.
        first, _ = await eventually(lambda: bound(loop, 2))
        await loop.client.delete(PODS, first, namespace="default", grace_seconds=0)
        await eventually(lambda: _count(loop, 7))
        await eventually(lambda: are_released(operator, 3, reason="admissible"))
        counted = await metrics(operator)
        outcomes = {name for name in counted if name.startswith("numazones_prediction_outcomes_total{")}
        assert all('actual="Admitted"' in name for name in outcomes)


async def _count(loop: Loop, number: int) -> bool:
    return len(await waiting_pods(loop)) == number


async def bound(loop: Loop, number: int) -> list[str]:
    """Names of the pods that have a node, once there are so many."""
    pods = await loop.client.list(PODS, namespace="default")
    found = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
    return found if len(found) == number else []


async def are_released(operator: Operator, number: int, *, reason: str) -> bool:
    """Whether so many releases are counted: they are when the API server has answered."""
    return (await metrics(operator))[
        f'numazones_admission_gates_released_total{{reason="{reason}"}}'
    ] == number


async def messages(loop: Loop, reason: str) -> dict[str, str]:
    """Pod → message of its events with a reason."""
    events = await loop.client.list(EVENTS, namespace="default")
    return {one["involvedObject"]["name"]: one["message"] for one in events if one["reason"] == reason}


async def test_the_time_out_releases_pods_of_which_nothing_is_known_and_no_others(tmp_path: Path) -> None:
    """Known to be inadmissible, a released pod would be rejected and replaced, again and again."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await opt_in(loop)
        operator = await loop.start_operator(admission_gate=True, admission_gate_timeout=1.0)
        gates = [{"name": GATE}]
        loop.publishers["node"].cancel()
        lease = "numazones-exporter-node"
        await loop.client.delete(LEASES, lease, namespace=OPTIONS.exporter_namespace)

        async def nothing_is_known() -> bool:
            return (await metrics(operator)).get('numazones_stale_nodes{reason="NoLease"}') == 1

        await eventually(nothing_is_known)
        await loop.create_pod("unknown", cpu=4, schedulingGates=gates)
        await eventually(lambda: messages(loop, "AdmissionGateTimeout"))
        assert "unknown" in await messages(loop, "AdmissionGateTimeout")
        assert "unknown" not in await waiting_pods(loop)
        counted = await metrics(operator)
        assert counted['numazones_admission_gates_released_total{reason="timeout"}'] >= 1


async def test_a_pod_that_is_known_to_fit_nowhere_waits_however_long(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await opt_in(loop)
        operator = await loop.start_operator(admission_gate=True, admission_gate_timeout=0.001)
        await eventually(operator.intent.followed.is_set, what="it knows who opts in")
        await loop.create_pod("huge", cpu=200, schedulingGates=[{"name": GATE}])
        await eventually(lambda: loop.verdict("huge"))
        operator.gates._wall = lambda: 4e9
        await operator.gates.release()
        assert await waiting_pods(loop) == ["huge"]
        counted = await metrics(operator)
        assert counted['numazones_gated_pods{served="true"}'] == 1
        # It never came to a time-out, and one can tell: the series is there.
        assert counted['numazones_admission_gates_released_total{reason="timeout"}'] == 0


async def test_pods_without_numa_needs_are_released_at_once(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await opt_in(loop)
        operator = await loop.start_operator(admission_gate=True)
        for name, resources in (("burstable", {"requests": {"cpu": "1"}}), ("best-effort", {})):
            container = {"name": "c", "image": "i", "resources": resources}
            await loop.create_pod(name, containers=[container], schedulingGates=[{"name": GATE}])
        await eventually(lambda: _count(loop, 0))
        pod = await loop.client.get(PODS, "burstable", namespace="default")
        assert "affinity" not in pod["spec"]
        await eventually(lambda: are_released(operator, 2, reason="unconcerned"))


@pytest.mark.parametrize(
    ("enabled", "cure"),
    [(False, "components/operator-admission-gate"), (True, "label it numazones.io/admission-gate=enabled")],
)
async def test_a_pod_whose_gate_nobody_takes_away_gets_an_event_that_says_why(
    tmp_path: Path, *, enabled: bool, cure: str
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.start_operator(admission_gate=enabled)
        await loop.create_pod("a", cpu=2, schedulingGates=[{"name": GATE}])
        found = await eventually(lambda: messages(loop, "AdmissionGateNotServed"))
        assert cure in found["a"]
        assert await waiting_pods(loop) == ["a"]


async def test_without_opting_in_nothing_is_released(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.start_operator(admission_gate=True)
        await loop.create_pod("a", cpu=2, schedulingGates=[{"name": GATE}])
        await eventually(lambda: loop.verdict("a"))
        await asyncio.sleep(1.5)
        assert await waiting_pods(loop) == ["a"]


async def test_a_pod_is_not_released_to_a_node_where_a_leaving_pod_may_lead_the_kubelet_astray() -> None:
    """What it frees may be given to an init container, on a NUMA node that has too little for the app."""
    cluster = Cluster("a")
    gates = AdmissionGates(
        cluster.server,  # type: ignore[arg-type]
        cluster.state,
        cluster.offline.pipeline.forecasts,
        cluster.held,
        opted_in("default"),
        cluster.offline.events,
        enabled=True,
        may_go=lambda _pod, _node: True,
        changed=asyncio.Event(),
        timeout=0,
        metrics=cluster.offline.metrics,
        wall=cluster.offline.clock,
    )
    cluster.pod("stays", cpu=18, nodeName="a")
    cluster.pod("leaves", cpu=10, nodeName="a")  # 2 CPUs are left on NUMA node 0
    cluster.ask_to_delete("leaves")
    for name, cpu in (("large", 20), ("small", 12)):
        body = cluster.pod(name, mirrored=False, cpu=cpu, schedulingGates=[{"name": GATE}])
        body["spec"]["initContainers"] = [pod_body("init", cpu=4)["spec"]["containers"][0] | {"name": "init"}]
        cluster.mirror(name)
    await cluster.offline.renew()
    assert cluster.offline.published["large"].verdict == "Admissible"  # while the other holds what it has
    await gates.release()
    assert [name for name, _ in cluster.server.patches] == ["small"]


def opted_in(name: str) -> Table[NamespaceLabels]:
    found: Table[NamespaceLabels] = Table(lambda namespace: namespace.name, lambda *_: None)
    found.put(NamespaceLabels(name, {OPT_IN[0]: OPT_IN[1]}))
    return found
