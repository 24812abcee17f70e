"""Tests that pods arriving while others leave are promised nothing that the kubelet would reject.

A kubelet frees a pod's share when its containers have stopped. The deletion is seen earlier, the end seconds
later. Which of the pods that came meanwhile got the room is unknown until new zones arrive.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones_operator.prevention.extender.binding import BOUND
from numazones_simulator import node_kinds
from tests.laws import examples
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates

Step = tuple[str, str]

ASK, FREE, END = "its deletion is asked for", "the kubelet frees it", "its end is seen"
COME, TRY = "it is bound", "it asks for a node"


class Kubelet:
    """One node as it is, and the mirror that lags behind it."""

    def __init__(self, *running: tuple[str, int]) -> None:
        self.node: Node = node_kinds.single_numa_node("a", "10.0.0.1").empty_node()
        self.cluster = Cluster("a")
        self.gates = offline_gates(self.cluster)
        self.tries = 0
        self.let_through: Counter[str] = Counter()
        for name, cpu in running:
            self.come(name, cpu)
        self.publish()

    def publish(self) -> None:
        """Let zones show the node as it is."""
        self.cluster.offline.publish("a", self.node)

    def come(self, name: str, cpu: int) -> None:
        """Bind a pod as another scheduler would; the kubelet decides on it immediately."""
        self.cluster.pod(name, cpu=cpu, nodeName="a")
        self.node = self.after(f"default/{name}") or self.node

    def after(self, key: str) -> Node | None:
        """Return the node with one more pod; None: the kubelet rejects it."""
        pod = ClusterPod.from_api(self.cluster.server.pods[key]).admission
        assert pod is not None
        decision = admit(self.node, pod)
        return decision.node if decision.admitted else None

    def leave(self, step: str, name: str) -> None:
        """Let a pod come one step nearer to its end."""
        if step == ASK:
            self.cluster.ask_to_delete(name)
        elif step == FREE:
            self.node = remove(self.node, f"uid-{name}")
        else:
            self.node = remove(self.node, f"uid-{name}")
            self.cluster.delete(name)

    async def check(self, containers: tuple[int, ...]) -> None:
        """Have the gate and the extender decide on a pod; the kubelet admits what they let through."""
        for try_one in (self._released, self._bound):
            self.tries += 1
            name = f"try-{self.tries}"
            let_through = await try_one(name, containers)
            self.let_through[try_one.__name__] += let_through
            if let_through:
                assert self.after(f"default/{name}") is not None, (try_one.__name__, containers)
            self.cluster.held.drop(f"uid-{name}")
            self.cluster.delete(name)
            self.cluster.server.patches.clear()

    async def _released(self, name: str, containers: tuple[int, ...]) -> bool:
        self._put(name, containers, schedulingGates=[{"name": GATE}])
        await self.cluster.offline.renew()
        await self.gates.release()
        return bool(self.cluster.server.patches)

    async def _bound(self, name: str, containers: tuple[int, ...]) -> bool:
        body = self._put(name, containers)
        passing = (await self.cluster.filter(body, ["a"]))["NodeNames"]
        bound = await self.cluster.bind(name, "a") == BOUND
        assert bound == (passing == ["a"])
        return bound

    def _put(self, name: str, containers: tuple[int, ...], **spec: Any) -> dict[str, Any]:
        """A pod with containers of so many CPUs."""
        body = self.cluster.pod(name, cpu=1, mirrored=False, **spec)
        (container,) = body["spec"]["containers"]
        body["spec"]["containers"] = [
            {
                **container,
                "name": f"c{at}",
                "resources": {kind: {"cpu": str(cpu), "memory": "1Gi"} for kind in ("requests", "limits")},
            }
            for at, cpu in enumerate(containers)
        ]
        self.cluster.mirror(name)
        return body


SHAPES = ((30,), (20,), (10,), (4, 20), (20, 20))


def orders(*steps: Step) -> Iterator[tuple[Step, ...]]:
    """Yield the steps in every order in which each pod leaves step by step."""
    for order in permutations(steps):
        leaving = [step for step, name in order if name == "leaves"]
        if leaving == [step for step in (ASK, FREE, END) if step in leaving]:
            yield order


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "ended by itself"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_order_of_leaving_and_coming_leads_to_a_rejection(
    *, deleted: bool, shape: tuple[int, ...]
) -> None:
    steps = [(step, "leaves") for step in ((ASK,) if deleted else ()) + (FREE, END)]
    for order in orders(*steps, (COME, "first"), (COME, "second")):
        asyncio.run(played(order, shape))


async def played(order: tuple[Step, ...], shape: tuple[int, ...]) -> None:
    kubelet = Kubelet(("leaves", 30), ("stays", 10))
    await kubelet.check(shape)
    for step, name in order:
        if step == COME:
            kubelet.come(name, 10)
        else:
            kubelet.leave(step, name)
        await kubelet.check(shape)
    kubelet.publish()
    await kubelet.check(shape)


async def test_room_is_promised_again_once_zones_show_who_has_it() -> None:
    kubelet = Kubelet(("leaves", 30), ("stays", 10))
    kubelet.leave(ASK, "leaves")
    kubelet.leave(FREE, "leaves")
    kubelet.come("comes", 10)  # where the first was, or next to the second
    kubelet.leave(END, "leaves")
    for zones, promised in ((False, False), (True, True)):
        if zones:
            kubelet.publish()
        body = kubelet.cluster.pod(f"p-{zones}", cpu=20, schedulingGates=[{"name": GATE}])
        large = kubelet.cluster.pod(f"q-{zones}", cpu=30, schedulingGates=[{"name": GATE}])
        assert (await kubelet.cluster.filter(body, ["a"]))["NodeNames"] == ["a"]
        assert (await kubelet.cluster.filter(large, ["a"]))["NodeNames"] == []
        await kubelet.cluster.offline.renew()
        await kubelet.gates.release()
        released = {name for name, _ in kubelet.cluster.server.patches}
        assert f"q-{zones}" not in released
        assert (f"p-{zones}" in released) or not promised


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(COME), st.sampled_from((4, 10, 20))),
        st.tuples(st.sampled_from((ASK, FREE, END)), st.integers(0, 7)),
        st.tuples(st.sampled_from(("zones", "time")), st.integers(0, 7)),
    ),
    min_size=3,
    max_size=12,
)


@given(
    running=st.lists(st.sampled_from((4, 10, 20, 30)), max_size=4), steps=STEPS, shape=st.sampled_from(SHAPES)
)
@settings(max_examples=examples(120))
def test_no_history_of_departures_leads_to_a_rejection(
    running: list[int], steps: list[tuple[str, int]], shape: tuple[int, ...]
) -> None:
    asyncio.run(any_history(running, steps, shape))


async def any_history(running: list[int], steps: list[tuple[str, int]], shape: tuple[int, ...]) -> None:
    kubelet = Kubelet(*((f"r{at}", cpu) for at, cpu in enumerate(running)))
    there = [f"r{at}" for at in range(len(running))]
    asked: set[str] = set()
    for at, (step, which) in enumerate(steps):
        if step == COME:
            kubelet.come(f"p{at}", which)
            there.append(f"p{at}")
        elif step == "zones":
            kubelet.publish()
        elif step == "time":
            kubelet.cluster.offline.let_pass(1.0)
        elif there:
            name = there[which % len(there)]
            if step == ASK and name not in asked:
                asked.add(name)
                kubelet.leave(ASK, name)
            elif step != ASK:
                kubelet.leave(step, name)
                if step == END:
                    there.remove(name)
        await kubelet.check(shape)
    for how, number in kubelet.let_through.items():
        event(f"{how}: {number}")
