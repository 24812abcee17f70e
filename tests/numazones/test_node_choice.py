"""Which node a pod goes to, by each way of choosing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.cluster import ClusterNode, ClusterPod
from numazones.node_choice import NodeChoice, choose
from numazones.placement import Unknown
from numazones.prediction import Kind, Standing, ask, beside
from numazones.resources import CPU
from numazones.whatif import trial
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.settings import parse
from numazones.whatif.workload import Event, Group, Leaving, Recipe

# 16 CPUs on each of two NUMA nodes; CPUs 0 and 1, of the first one, are reserved.
MACHINE = "sockets=2,numa=2,cores=32,threads=1,memory=64Gi"
EXACT = [choice for choice in NodeChoice if choice is not NodeChoice.DEFAULT]


def pods(*groups: str) -> list[ClusterPod]:
    arriving = Recipe(tuple(map(Group.parse, groups))).events(RandomNumbers(1, 0))
    return [event for event in arriving if isinstance(event, ClusterPod)]


def pod(text: str) -> ClusterPod:
    (made,) = pods(text)
    return made


def node(name: str, *holding: str, policy: str = "single-numa-node") -> ClusterNode:
    template = node_template(MACHINE, name=name).with_settings(parse([f"topologyManagerPolicy={policy}"]))
    (made,) = start_nodes([template])
    for number, text in enumerate(holding):
        uid = f"{name}-{number}"
        held = pod(text)
        admission = held.admission
        assert admission is not None
        named = admission.with_metadata({"name": uid, "namespace": "default", "uid": uid})
        taken = beside(replace(held, name=uid, uid=uid, admission=named), made)
        assert taken is not None
        made = taken
    return made


def chosen(text: str, nodes: list[ClusterNode], choice: NodeChoice) -> str | None:
    found = choose(pod(text), nodes, choice)
    return None if found is None else found.name


# Empty, they have 14 and 16 CPUs. Both NUMA nodes are begun; one is whole; both are nearly full.
HALVES = node("halves", "1xcpu=8", "1xcpu=8", "1xcpu=2")
WHOLE = node("whole", "1xcpu=13")
FULL = node("full", "1xcpu=14", "1xcpu=14")


@pytest.mark.parametrize(
    ("text", "choice", "expected"),
    [
        ("1xcpu=4", NodeChoice.DEFAULT, "whole"),
        ("1xcpu=4", NodeChoice.EXACT, "whole"),
        ("1xcpu=4", NodeChoice.PACK, "halves"),
        ("1xcpu=4", NodeChoice.BEST_FIT, "halves"),
        ("1xcpu=2", NodeChoice.PACK, "full"),
        ("1xcpu=12", NodeChoice.DEFAULT, "whole"),
        ("1xcpu=12", NodeChoice.PACK, "whole"),
        ("1xcpu=17", NodeChoice.DEFAULT, "whole"),  # its kubelet rejects it: no NUMA node has 17 CPUs
        ("1xcpu=17", NodeChoice.EXACT, None),
        ("1xcpu=17", NodeChoice.PACK, None),
        ("1xcpu=17", NodeChoice.BEST_FIT, None),
        ("1xcpu=40", NodeChoice.DEFAULT, None),
    ],
)
def test_each_way_chooses_its_node(text: str, choice: NodeChoice, expected: str | None) -> None:
    assert chosen(text, [HALVES, WHOLE, FULL], choice) == expected


def test_the_default_chooses_a_node_that_rejects_the_pod_where_another_one_would_admit_it() -> None:
    begun = node("begun", "1xcpu=6", "1xcpu=10")  # 8 and 6 CPUs are free
    busy = node("busy", "1xcpu=15", "1xcpu=3")  # 12 on one NUMA node
    large = "1xcpu=11"
    assert chosen(large, [begun, busy], NodeChoice.DEFAULT) == "begun"
    kind = Kind.of(pod(large))
    assert kind is not None
    assert ask(kind, begun).standing is Standing.REJECTS
    assert {chosen(large, [begun, busy], choice) for choice in EXACT} == {"busy"}


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_of_equal_nodes_the_first_is_chosen(choice: NodeChoice) -> None:
    first, second = node("a"), node("b")
    assert chosen("1xcpu=4", [first, second], choice) == "a"
    assert chosen("1xcpu=4", [second, first], choice) == "b"


@pytest.mark.parametrize("choice", EXACT)
def test_a_node_of_which_nothing_is_known_is_not_chosen(choice: NodeChoice) -> None:
    unknown = node("unknown").with_placement(Unknown("StaleZones", "the exporter is silent"))
    assert chosen("1xcpu=4", [unknown, FULL], choice) is None
    assert chosen("1xcpu=2", [unknown, FULL], choice) == "full"


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_a_node_that_the_scheduler_passes_over_is_not_chosen(choice: NodeChoice) -> None:
    assert chosen("1xcpu=4", [replace(node("a"), unschedulable=True), WHOLE], choice) == "whole"


@pytest.mark.parametrize("choice", EXACT)
def test_a_pod_that_cannot_be_read_goes_nowhere(choice: NodeChoice) -> None:
    body = {"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": []}}
    assert choose(ClusterPod.from_api(body), [WHOLE], choice) is None


sizes = st.lists(st.integers(1, 20), max_size=14)
policies = st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"])


def arrivals(counts: list[int], leaving: list[int]) -> list[Event]:
    """Pods of these sizes; after each one an earlier one may leave."""
    arriving = pods(*(f"1xcpu={count}" for count in counts)) if counts else []
    events: list[Event] = []
    for number, one in enumerate(arriving):
        events.append(one)
        if number < len(leaving) and leaving[number] < number:
            events.append(Leaving(f"pod-{leaving[number]}"))
    return events


@given(sizes, st.lists(st.integers(0, 14), max_size=14), policies, st.sampled_from(EXACT))
def test_no_kubelet_rejects_a_pod_for_which_it_was_asked(
    counts: list[int], leaving: list[int], policy: str, choice: NodeChoice
) -> None:
    nodes = [node(name, policy=policy) for name in "abc"]
    outcome = trial.run(nodes, arrivals(counts, leaving), choice=choice)
    assert [reason for reason, _ in outcome.rejected if reason != trial.UNSCHEDULABLE] == []


@given(st.lists(st.lists(st.integers(1, 8), max_size=5), min_size=1, max_size=4), st.integers(1, 17))
def test_a_node_is_found_exactly_if_one_would_admit_the_pod(held: list[list[int]], cpus: int) -> None:
    nodes = []
    for number, counts in enumerate(held):
        made = node(f"n{number}")
        for index, count in enumerate(counts):
            uid = f"{number}-{index}"
            one = pod(f"1xcpu={count}")
            assert one.admission is not None
            named = one.admission.with_metadata({"name": uid, "namespace": "default", "uid": uid})
            made = beside(replace(one, name=uid, uid=uid, admission=named), made) or made
        nodes.append(made)
    text = f"1xcpu={cpus}"
    kind = Kind.of(pod(text))
    assert kind is not None
    admitting = {one.name for one in nodes if ask(kind, one).standing is Standing.ADMITS}
    for choice in EXACT:
        found = chosen(text, nodes, choice)
        assert found in admitting if admitting else found is None
    packed = choose(pod(text), nodes, NodeChoice.PACK)
    spread = choose(pod(text), nodes, NodeChoice.EXACT)
    if packed is not None and spread is not None:
        assert packed.requested.get(CPU, 0) >= spread.requested.get(CPU, 0)
