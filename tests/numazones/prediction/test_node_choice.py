"""The node that a pod goes to, by each way of choosing."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.pod_kind import ALIGNMENT
from numazones.placement import Unknown
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    NodeAnswer,
    PodKind,
    ask,
    beside,
    predict,
)
from numazones.prediction.node_choice import ASKING, Chooser, NodeChoice, Ranking
from numazones.prediction.room import pod_of_shape
from numazones.whatif import trial
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import start_nodes
from numazones.whatif.settings import parse
from numazones.whatif.workload import Leaving, WorkloadEvent

# 16 CPUs on each of two NUMA nodes; CPUs 0 and 1, of the first one, are reserved.
MACHINE = "sockets=2,numa=2,cores=32,threads=1,memory=64Gi"
EXACT = [choice for choice in NodeChoice if choice not in (NodeChoice.DEFAULT, NodeChoice.NRT)]


def pod(text: str, name: str = "new") -> ClusterPod:
    return pod_of_shape(Shape.parse(text), name)


def node(name: str, *holding: str, policy: str = "single-numa-node", machine: str = MACHINE) -> ClusterNode:
    """A node with those of these pods, one after the other, that its kubelet admits."""
    template = node_template(machine, name=name).with_settings(parse([f"topologyManagerPolicy={policy}"]))
    (made,) = start_nodes([template])
    for number, text in enumerate(holding):
        made = beside(pod(text, f"{name}-{number}"), made) or made
    return made


def chosen(text: str, nodes: list[ClusterNode], choice: NodeChoice, *shapes: str) -> str | None:
    found = Chooser(choice, [Shape.parse(shape) for shape in shapes]).choose(pod(text), nodes)
    return None if found is None else found.name


# Empty, they have 14 and 16 CPUs. Both NUMA nodes are begun; one is whole; both are nearly full.
HALVES = node("halves", "cpu=8", "cpu=8", "cpu=2")
WHOLE = node("whole", "cpu=13")
FULL = node("full", "cpu=14", "cpu=14")


@pytest.mark.parametrize(
    ("text", "choice", "expected"),
    [
        ("cpu=4", NodeChoice.DEFAULT, "whole"),
        ("cpu=4", NodeChoice.EXACT, "whole"),
        ("cpu=4", NodeChoice.PACK, "halves"),
        ("cpu=4", NodeChoice.BEST_FIT, "halves"),
        ("cpu=2", NodeChoice.PACK, "full"),
        ("cpu=12", NodeChoice.DEFAULT, "whole"),
        ("cpu=12", NodeChoice.PACK, "whole"),
        ("cpu=17", NodeChoice.DEFAULT, "whole"),  # its kubelet rejects it: no NUMA node has 17 CPUs
        ("cpu=17", NodeChoice.EXACT, None),
        ("cpu=17", NodeChoice.PACK, None),
        ("cpu=17", NodeChoice.BEST_FIT, None),
        ("cpu=40", NodeChoice.DEFAULT, None),
        ("cpu=4", NodeChoice.NRT, "halves"),
        ("cpu=17", NodeChoice.NRT, None),
    ],
)
def test_each_way_chooses_its_node(text: str, choice: NodeChoice, expected: str | None) -> None:
    assert [len(one.pods) for one in (HALVES, WHOLE, FULL)] == [3, 1, 2]
    assert chosen(text, [HALVES, WHOLE, FULL], choice) == expected


def test_node_that_went_is_forgotten() -> None:
    chooser = Chooser(NodeChoice.EXACT)
    assert chooser.choose(pod("cpu=12"), [HALVES, WHOLE]) is WHOLE
    assert chooser.choose(pod("cpu=12"), [HALVES]) is None
    assert chooser.choose(pod("cpu=12"), [HALVES, WHOLE]) is WHOLE


@pytest.mark.parametrize(
    ("text", "policy", "approximate", "verdict", "sentence"),
    [
        ("cpu=4", "best-effort", False, ADMISSIBLE, "1 of 1 nodes would admit it"),
        (
            "cpu=17",
            "best-effort",
            False,
            INADMISSIBLE,
            "CPUs, memory and devices on NUMA nodes 0-1: not aligned; the pod requires alignment",
        ),
        (
            "cpu=4",
            "single-numa-node",
            True,
            UNKNOWN,
            (
                "the node publishes no NUMAZones, so it is not known exactly where the pod's CPUs and "
                "devices would be; the pod requires alignment"
            ),
        ),
    ],
)
def test_pod_that_requires_alignment_needs_one_numa_node(
    text: str, policy: str, verdict: str, sentence: str, *, approximate: bool
) -> None:
    there = node("n", policy=policy)
    assert there.state is not None
    found = predict(
        replace(pod(text), annotations={ALIGNMENT: "required"}),
        [there.with_state(there.state, approximate=approximate)],
    )
    assert (found.verdict, found.sentence.startswith(sentence)) == (verdict, True)


@pytest.mark.parametrize("policy", ["single-numa-node", "best-effort"])
@pytest.mark.parametrize("choice", NodeChoice)
def test_who_remembers_what_nodes_said_chooses_as_who_asks_anew(choice: NodeChoice, policy: str) -> None:
    shapes, random = [Shape.parse("cpu=6")], Random(1)
    chooser = Chooser(choice, shapes)
    nodes = {name: node(name, policy=policy) for name in ("a", "b", "c")}
    placed: list[tuple[str, ClusterPod]] = []
    chosen_names = set()
    for step in range(60):
        new = pod(f"cpu={random.choice((2, 3, 6, 11))}", f"pod-{step}")
        there = [one for name, one in nodes.items() if name != "b" or step % 20 < 15]  # b is away at times
        expected = Chooser(choice, shapes).choose(new, there)
        found = chooser.choose(new, there)
        assert found is expected
        chosen_names.add(found and found.name)
        after = found and beside(new, found)
        if found is not None and after is not None:
            nodes[found.name] = after
            placed.append((found.name, new))
        if len(placed) > 9:
            name, leaving = placed.pop(random.randrange(len(placed)))
            placement = nodes[name].known
            assert placement is not None
            left = nodes[name].without_pod(leaving.uid)
            nodes[name] = left.with_placement(placement.remove(leaving.kubelet_uid))
    assert {"a", "b", "c"} <= chosen_names


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that are asked, one after the other."""
    names: list[str] = []
    renew = Forecast.renew

    def counted(forecast: Forecast, nodes: Iterable[ClusterNode]) -> bool:
        renewed = list(nodes)
        names.extend(one.name for one in renewed)
        return renew(forecast, renewed)

    monkeypatch.setattr(Forecast, "renew", counted)
    return names


def test_choice_for_many_equal_pods_asks_only_changed_nodes(asked: list[str]) -> None:
    chooser, new = Chooser(NodeChoice.BEST_FIT), pod("cpu=4")
    found = chooser.choose(new, [HALVES, WHOLE, FULL])
    assert found is HALVES
    after = beside(new, found)
    assert after is not None
    asked.clear()
    chooser.choose(new, [after, WHOLE, FULL])
    assert asked == ["halves"]


def test_of_many_kinds_of_pods_the_latest_are_remembered(asked: list[str]) -> None:
    chooser = Chooser(NodeChoice.BEST_FIT)
    kinds = [pod(f"cpu=1,memory={number}Mi") for number in range(1, 66)]  # one more than are remembered
    for kind in kinds:
        chooser.choose(kind, [WHOLE])
    asked.clear()
    for kind in reversed(kinds):
        chooser.choose(kind, [WHOLE])
    assert asked == ["whole"]


@pytest.mark.parametrize(
    ("text", "choice", "expected"),
    [
        # It fits more snugly beside the GPUs, of which it needs none.
        ("cpu=4", NodeChoice.BEST_FIT, "gpus"),
        ("cpu=4", NodeChoice.SCARCE, "plain"),
        ("cpu=4,vendor.example/gpu=1", NodeChoice.SCARCE, "gpus"),
        ("cpu=16", NodeChoice.SCARCE, "plain"),
        ("cpu=17", NodeChoice.SCARCE, None),
    ],
)
def test_scarce_keeps_what_is_beside_idle_devices(
    text: str, choice: NodeChoice, expected: str | None
) -> None:
    gpus = node("gpus", "cpu=14", "cpu=11", machine=f"{MACHINE},vendor.example/gpu=4")
    plain = node("plain", "cpu=14", "cpu=10") if text == "cpu=4" else node("plain")
    assert chosen(text, [gpus, plain], choice) == expected


def test_default_strategy_applies_if_none_is_given() -> None:
    gpus = node("gpus", "cpu=14", "cpu=11", machine=f"{MACHINE},vendor.example/gpu=4")
    nodes = [gpus, node("plain", "cpu=14", "cpu=10"), HALVES, WHOLE]
    kind = PodKind.of(pod("cpu=4"))
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew(nodes)
    keys = Ranking().keys(pod("cpu=4"), forecast.verdicts, {one.name: one for one in nodes}.get)
    assert Ranking() == Ranking(ASKING[0])
    named = [one.node for one in predict(pod("cpu=4"), nodes).candidates]
    assert named == sorted(keys, key=lambda name: (keys[name], name))
    assert named == list(forecast.admitting)
    assert named[0] == chosen("cpu=4", nodes, ASKING[0])
    assert named.index("plain") < named.index("gpus")  # which best-fit would have the other way round


def test_shapes_strategy_keeps_room_for_further_pods() -> None:
    room_for_six = node("six", "cpu=14", "cpu=10")  # 6 CPUs are free
    room_for_nine = node("nine", "cpu=14", "cpu=7")  # 9
    nodes = [room_for_six, room_for_nine]
    assert chosen("cpu=3", nodes, NodeChoice.SHAPES, "cpu=6") == "nine"  # 6 of 9 CPUs remain
    assert chosen("cpu=3", nodes, NodeChoice.SHAPES, "cpu=9") == "six"


def test_default_scheduler_may_choose_a_rejecting_node() -> None:
    begun = node("begun", "cpu=6", "cpu=10")  # 8 and 6 CPUs are free
    busy = node("busy", "cpu=15", "cpu=3")  # 12 on one NUMA node
    assert (len(begun.pods), len(busy.pods)) == (2, 2)
    large = "cpu=11"
    assert chosen(large, [begun, busy], NodeChoice.DEFAULT) == "begun"
    kind = PodKind.of(pod(large))
    assert kind is not None
    assert ask(kind, begun).answer is NodeAnswer.REJECTS
    assert {chosen(large, [begun, busy], choice) for choice in EXACT} == {"busy"}


def test_plugin_that_reads_amounts_looks_only_at_single_numa_node() -> None:
    restricted = node("restricted", policy="restricted")
    kind = PodKind.of(pod("cpu=17"))
    assert kind is not None
    assert ask(kind, node("other", "cpu=10", policy="restricted")).answer is NodeAnswer.REJECTS
    assert chosen("cpu=17", [node("other", "cpu=10", policy="restricted")], NodeChoice.NRT) == "other"
    assert chosen("cpu=4", [restricted], NodeChoice.NRT) == "restricted"


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_of_equal_nodes_the_first_is_chosen(choice: NodeChoice) -> None:
    first, second = node("a"), node("b")
    assert chosen("cpu=4", [first, second], choice) == "a"
    assert chosen("cpu=4", [second, first], choice) == "b"


@pytest.mark.parametrize("choice", EXACT)
def test_a_node_of_which_nothing_is_known_is_not_chosen(choice: NodeChoice) -> None:
    unknown = node("unknown").with_placement(Unknown("StaleZones", "the exporter is silent"))
    assert chosen("cpu=4", [unknown, FULL], choice) is None
    assert chosen("cpu=2", [unknown, FULL], choice) == "full"


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_a_node_that_the_scheduler_passes_over_is_not_chosen(choice: NodeChoice) -> None:
    assert chosen("cpu=4", [replace(node("a"), unschedulable=True), WHOLE], choice) == "whole"


@pytest.mark.parametrize("choice", EXACT)
def test_a_pod_that_cannot_be_read_goes_nowhere(choice: NodeChoice) -> None:
    body = {"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": []}}
    assert Chooser(choice).choose(ClusterPod.from_api(body), [WHOLE]) is None


sizes = st.lists(st.integers(1, 20), max_size=14)
policies = st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"])


def arrivals(counts: list[int], leaving: list[int]) -> list[WorkloadEvent]:
    """Pods of these sizes; after each one an earlier one may leave."""
    arriving = [pod(f"cpu={count}", str(number)) for number, count in enumerate(counts)]
    events: list[WorkloadEvent] = []
    for number, one in enumerate(arriving):
        events.append(one)
        if number < len(leaving) and leaving[number] < number:
            events.append(Leaving(arriving[leaving[number]].kubelet_uid))
    return events


@given(sizes, st.lists(st.integers(0, 14), max_size=14), policies, st.sampled_from(EXACT))
def test_no_kubelet_rejects_a_pod_for_which_it_was_asked(
    counts: list[int], leaving: list[int], policy: str, choice: NodeChoice
) -> None:
    nodes = [node(name, policy=policy) for name in "abc"]
    outcome = trial.run(nodes, arrivals(counts, leaving), choice=choice)
    assert [reason for reason, _ in outcome.rejected if reason != trial.UNSCHEDULABLE] == []


@given(st.lists(st.lists(st.integers(1, 8), max_size=5), min_size=1, max_size=4), st.integers(1, 17))
def test_node_is_found_exactly_if_one_would_admit_the_pod(held: list[list[int]], cpus: int) -> None:
    nodes = [node(f"n{number}", *(f"cpu={count}" for count in counts)) for number, counts in enumerate(held)]
    text = f"cpu={cpus}"
    kind = PodKind.of(pod(text))
    assert kind is not None
    admitting = {one.name for one in nodes if ask(kind, one).answer is NodeAnswer.ADMITS}
    for choice in EXACT:
        found = chosen(text, nodes, choice)
        assert found in admitting if admitting else found is None
    packed = Chooser(NodeChoice.PACK).choose(pod(text), nodes)
    spread = Chooser(NodeChoice.EXACT).choose(pod(text), nodes)
    if packed is not None and spread is not None:
        assert packed.requested.get(CPU, 0) >= spread.requested.get(CPU, 0)
