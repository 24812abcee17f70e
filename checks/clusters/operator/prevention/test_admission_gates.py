"""The scheduling gate: who is released, when, and to which nodes; the rule of one slot for one pod."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop, metrics
from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import GATE, RELEASED
from numazones_apiserver.errors import StatusError
from numazones_apiserver.faults import Fault
from numazones_client.resources import ADMISSION_PREDICTIONS, EVENTS, LEASES, PODS, PRIORITY_CLASSES
from numazones_operator.prevention import preempting_pods as preempting_releases
from numazones_operator.prevention.admission_gates import PATIENCE_SECONDS
from numazones_operator.process import Operator
from numazones_simulator import node_kinds
from tests.operator.pods import pod_body
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates
from tests.waiting import eventually

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


async def waiting_pods(loop: Loop) -> list[str]:
    pods = await loop.client.list(PODS, namespace="default")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("schedulingGates")]


@pytest.mark.slow
async def test_ten_pods_are_never_released_for_two_slots(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        # Two zones with 30 CPUs each: two pods of 20 fit, one in each.
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
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
    """Return whether so many releases are counted: they are when the API server has answered."""
    return (await metrics(operator))[
        f'numazones_admission_gates_released_total{{reason="{reason}"}}'
    ] == number


async def messages(loop: Loop, reason: str) -> dict[str, str]:
    """Pod → message of its events with a reason."""
    events = await loop.client.list(EVENTS, namespace="default")
    return {one["involvedObject"]["name"]: one["message"] for one in events if one["reason"] == reason}


async def test_forged_releases_hold_no_room(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        await loop.start_operator(admission_gate=True)
        for name, later in (("squat-0", 0), ("squat-1", 55)):
            moment = timestamp.format(datetime.now(UTC) + timedelta(seconds=later))
            body = pod_body(name, cpu=30, schedulerName="nobody")
            body["metadata"]["annotations"] = {RELEASED: moment}
            await loop.client.create(PODS, body, namespace="default")
        await loop.create_pod("honest", cpu=20, schedulingGates=[{"name": GATE}])
        await loop.create_pod("second", cpu=20, schedulingGates=[{"name": GATE}])

        async def released() -> bool:
            return not await waiting_pods(loop)

        await eventually(released, what="both are released, one to each zone")


async def test_timeout_releases_only_pods_without_known_nodes(tmp_path: Path) -> None:
    """Known to be inadmissible, a released pod would be rejected and replaced, again and again."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
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


async def test_pod_known_to_fit_nowhere_waits_whatever_its_prediction_says(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True, admission_gate_timeout=3600.0)
        await eventually(operator.intent.followed.is_set, what="it knows who opts in")
        await loop.create_pod("huge", cpu=200, schedulingGates=[{"name": GATE}])
        await eventually(lambda: loop.verdict("huge"))
        forged = {"status": {"verdict": "Admissible", "message": "forged"}}
        await loop.client.patch(
            ADMISSION_PREDICTIONS, "huge", forged, namespace="default", subresource="status"
        )
        for now in (4e9, 8e9):
            operator.gates.clock = lambda now=now: now  # type: ignore[misc]
            await operator.gates.release()
        assert await waiting_pods(loop) == ["huge"]
        counted = await metrics(operator)
        assert counted['numazones_gated_pods{served="true"}'] == 1
        # It never came to a time-out, and one can tell: the series is there.
        assert counted['numazones_admission_gates_released_total{reason="timeout"}'] == 0
        await loop.create_pod("small", cpu=2, schedulingGates=[{"name": GATE}])
        await eventually(partial(waits, loop, "huge"), what="others are not delayed")


async def waits(loop: Loop, *names: str) -> bool:
    """Return whether exactly these pods wait at the gate."""
    return await waiting_pods(loop) == list(names)


async def test_pods_without_numa_needs_are_released_at_once(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
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
async def test_pod_whose_gate_stays_gets_an_event_with_the_reason(
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


GATES = [{"name": GATE}]


async def classes(loop: Loop, **values: int) -> None:
    for name, value in values.items():
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await loop.client.create(PRIORITY_CLASSES, body | {"value": value})


async def test_the_more_important_takes_the_room_though_it_came_later(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        await classes(loop, high=1000)
        # Two zones with 30 CPUs each: the small one leaves no room for the large one in either.
        for number in range(2):
            await loop.create_pod(f"low-{number}", cpu=20, schedulingGates=GATES)
        await loop.create_pod("high", cpu=20, schedulingGates=GATES, priorityClassName="high")
        await loop.create_pod("huge", cpu=200, schedulingGates=GATES, priorityClassName="high")
        operator = await loop.start_operator(admission_gate=True)
        await eventually(lambda: are_released(operator, 2, reason="admissible"))
        # The one that fits nowhere kept nobody waiting, and of equal ones the first by name went.
        assert await waiting_pods(loop) == ["huge", "low-1"]


async def test_node_is_left_to_a_pod_of_higher_priority(tmp_path: Path) -> None:
    """Its forecast may be a moment behind; the room is its own all the same."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        await classes(loop, high=1000)
        operator = await loop.start_operator(admission_gate=True)
        await eventually(operator.intent.followed.is_set, what="it knows who opts in")
        operator.gates.served.enabled = False
        await loop.create_pod("high", cpu=20, schedulingGates=GATES, priorityClassName="high")
        await loop.create_pod("low", cpu=4, schedulingGates=GATES)
        await eventually(lambda: loop.verdict("high"))
        await eventually(lambda: loop.verdict("low"))
        forecasts = operator.pipeline.forecasts
        real = forecasts.forecast_of
        (high,) = (pod.uid for pod in operator.pipeline.state.gated.values() if pod.name == "high")
        forecasts.forecast_of = lambda uid: None if uid == high else real(uid)  # type: ignore[method-assign]
        operator.gates.served.enabled = True
        assert await operator.gates.release()
        assert await waiting_pods(loop) == ["high", "low"]
        forecasts.forecast_of = real  # type: ignore[method-assign]
        await eventually(lambda: _count(loop, 0))


async def test_ours_is_the_last_gate_and_holds_no_room_before(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True)
        other = {"name": "example.com/wait"}
        for number in range(3):
            await loop.create_pod(f"held-{number}", cpu=20, schedulingGates=[other, *GATES])
        for number in range(2):
            await loop.create_pod(f"p{number}", cpu=20, schedulingGates=GATES)
        await eventually(lambda: are_released(operator, 2, reason="admissible"))
        held = await loop.client.get(PODS, "held-0", namespace="default")
        assert held["spec"]["schedulingGates"] == [other, *GATES]
        assert "affinity" not in held["spec"]
        for name in ("p0", "p1"):
            await loop.client.delete(PODS, name, namespace="default", grace_seconds=0)
        patch = {"spec": {"schedulingGates": GATES}}
        await loop.client.patch(PODS, "held-0", patch, namespace="default")
        await eventually(lambda: are_released(operator, 3, reason="admissible"))
        assert await waiting_pods(loop) == ["held-1", "held-2"]


async def test_gated_daemon_set_pod_is_released_to_its_node(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        nodes = [node_kinds.single_numa_node(name, f"10.0.0.{at}") for at, name in enumerate(("a", "b"), 1)]
        await loop.start_nodes(nodes)
        await loop.opt_in()
        await loop.start_operator(admission_gate=True)
        loop.start_scheduler()
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [named]}}}
        await loop.create_pod("daemon", cpu=4, schedulingGates=GATES, affinity=affinity)
        assert await eventually(lambda: bound(loop, 1)) == ["daemon"]
        pod = await loop.client.get(PODS, "daemon", namespace="default")
        assert pod["spec"]["nodeName"] == "b"


async def running(loop: Loop, number: int) -> bool:
    pods = await loop.client.list(PODS, namespace="default")
    return len([pod for pod in pods if pod["status"]["phase"] == "Running"]) == number


@pytest.mark.parametrize(
    ("fillers", "goes"),
    [
        # Zones hold 30 CPUs each. The scheduler preempts one of two, and a zone is free then.
        ([("low-a", 28, "low"), ("low-b", 28, "low")], True),
        # It preempts the least important of four, one in each zone: in vain.
        ([("mid-a", 14, "mid"), ("low-a", 14, "low"), ("mid-b", 14, "mid"), ("low-b", 14, "low")], False),
    ],
    ids=["makes room", "in vain"],
)
async def test_pod_is_released_to_nodes_where_preemption_helps(
    tmp_path: Path, fillers: list[tuple[str, int, str]], *, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preempting_releases, "PERIOD", 0.05)
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        await classes(loop, high=1000, mid=10, low=1)
        for at, (name, cpu, priority) in enumerate(fillers, 1):
            await loop.create_pod(name, cpu=cpu, priorityClassName=priority)
            await loop.bind(name, "node")
            await eventually(partial(running, loop, at))
        operator = await loop.start_operator(admission_gate=True)
        await loop.create_pod("equal", cpu=28, schedulingGates=GATES, priorityClassName="low")
        await loop.create_pod("high", cpu=28, schedulingGates=GATES, priorityClassName="high")
        await eventually(lambda: loop.verdict("high"))
        if not goes:
            searches = operator.gates.preempting
            await eventually(lambda: {priority for _, priority in searches._due} == {1, 1000})
            before = searches._due
            await eventually(lambda: all(searches._due[key] > before[key] for key in before))
            assert await waiting_pods(loop) == ["equal", "high"]
            return
        await eventually(lambda: are_released(operator, 1, reason="preemption"))
        assert await waiting_pods(loop) == ["equal"]
        # What the scheduler does then: it preempts one pod, and binds the other once that is gone.
        await loop.client.delete(PODS, "low-b", namespace="default")
        await eventually(lambda: running(loop, 1))
        await loop.bind("high", "node")
        await eventually(lambda: running(loop, 2))


async def test_rejected_release_is_reported_on_its_pod_and_blocks_nothing(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True)

        large = StatusError(500, "InternalError", "etcdserver: request is too large")
        loop.server.faults.add(Fault(verb="patch", resource="pods", name="a", count=None, error=large))
        await loop.create_pod("a", cpu=2, schedulingGates=GATES)
        found = await eventually(lambda: messages(loop, "AdmissionGateNotServed"))
        assert "request is too large" in found["a"]
        await loop.create_pod("b", cpu=2, schedulingGates=GATES)
        await eventually(lambda: are_released(operator, 1, reason="admissible"))
        assert await waiting_pods(loop) == ["a"]
        assert "a" not in {pod.name for pods in operator.held.by_node().values() for pod in pods}


async def test_the_time_out_counts_from_when_nothing_is_known(tmp_path: Path) -> None:
    """Not from when the pod was made: one that waited for long is not released for an exporter's hiccup."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True, admission_gate_timeout=60.0)
        await eventually(operator.intent.followed.is_set, what="it knows who opts in")
        await loop.create_pod("huge", cpu=200, schedulingGates=GATES)
        await eventually(lambda: loop.verdict("huge"))
        now = 4e9
        operator.gates.clock = lambda: now
        forecasts = operator.pipeline.forecasts
        forecasts.prediction_of = lambda uid: None  # type: ignore[method-assign] # noqa: ARG005
        await operator.gates.release()
        assert await waiting_pods(loop) == ["huge"]
        now += 61
        await eventually(lambda: _count(loop, 0))


async def test_clock_set_forward_releases_no_pod_by_timeout(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True, admission_gate_timeout=3600.0)
        await eventually(operator.intent.followed.is_set, what="it knows who opts in")
        await loop.create_pod("huge", cpu=200, schedulingGates=GATES)
        await eventually(lambda: loop.verdict("huge"))
        forecasts = operator.pipeline.forecasts
        forecasts.prediction_of = lambda uid: None  # type: ignore[method-assign] # noqa: ARG005
        await operator.gates.release()
        operator.gates.writer.wall = lambda: 4e9
        await operator.gates.release()
        assert await waiting_pods(loop) == ["huge"]


async def test_who_may_not_lead_any_more_releases_nobody(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("node", "10.0.0.1")])
        await loop.opt_in()
        operator = await loop.start_operator(admission_gate=True)
        operator.gates.writer.leads = lambda: False
        await loop.create_pod("a", cpu=2, schedulingGates=GATES)
        await eventually(lambda: loop.verdict("a"))
        await operator.gates.release()
        assert await waiting_pods(loop) == ["a"]
        assert not operator.held.by_node()
        operator.gates.writer.leads = lambda: True
        await eventually(lambda: _count(loop, 0))


async def test_pod_is_not_released_where_a_leaving_pod_endangers_it() -> None:
    """CPUs that it frees may go to an init container, on a NUMA node that has too little for the app."""
    cluster = Cluster("a")
    gates = offline_gates(cluster)
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


async def test_pod_at_risk_from_ending_pods_is_released_after_quiet() -> None:
    """Nothing would ever change on a quiet cluster; `large` would wait for ever beside the room it fits."""
    cluster = Cluster("a")
    gates = offline_gates(cluster)
    cluster.pod("stays", cpu=18, nodeName="a")
    cluster.pod("may-end", cpu=10, nodeName="a")
    body = cluster.pod("large", mirrored=False, cpu=20, schedulingGates=[{"name": GATE}])
    body["spec"]["initContainers"] = [pod_body("init", cpu=4)["spec"]["containers"][0] | {"name": "init"}]
    cluster.mirror("large")
    await cluster.offline.renew()
    assert cluster.offline.published["large"].verdict == "Admissible"
    await gates.release()
    cluster.offline.clock.now += PATIENCE_SECONDS - 1
    await gates.release()
    assert not cluster.server.patches
    cluster.offline.clock.now += 1
    await gates.release()
    assert [name for name, _ in cluster.server.patches] == ["large"]
