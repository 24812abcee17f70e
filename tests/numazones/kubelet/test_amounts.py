"""Decisions that follow from amounts: the same on nodes that differ only in which CPUs are free."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from numazones import cpuset
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit
from numazones.kubelet.amounts import amounts_of, follows_from_amounts
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.kubelet.startup import KubeletManagers
from numazones.kubelet.versions import REFERENCE, Release
from numazones.placement.fragmentation import zones_of
from numazones.prediction.forecast import Forecast, PodKind, ask
from tests.laws import examples
from tests.numazones.kubelet.building import (
    configuration,
    container,
    cpu_option_sets,
    machine,
    node,
    pod,
)

NIC = "vendor/nic"


@st.composite
def configurations(draw: st.DrawFn) -> tuple[Machine, KubeletConfiguration]:
    numas = draw(st.sampled_from((1, 2, 4)))
    policy = draw(
        st.sampled_from(("single-numa-node", "single-numa-node", "restricted", "best-effort", "none"))
    )
    hardware = machine(numas, cores=4, cores_per_uncore_cache=2, sockets=draw(st.sampled_from((1, numas))))
    closest = draw(st.sampled_from(({}, {"prefer-closest-numa-nodes": "true"})))
    config = configuration(
        policy,
        scope=draw(st.sampled_from(("container", "pod"))),
        memory=draw(st.sampled_from(("Static", "None"))),
        cpu_options=draw(st.sampled_from(cpu_option_sets(Release(REFERENCE), policy=policy))),
        options={} if policy == "none" else closest,
    )
    return hardware, config


@st.composite
def fillings(draw: st.DrawFn, hardware: Machine, kubelet: KubeletManagers) -> tuple[Node, Node]:
    """Two nodes with as many CPUs given away on each NUMA node, but others."""
    given: list[dict[str, dict[str, int]]] = [{}, {}]
    for numa, cpus in hardware.cpus_of_numa.items():
        spare = list(cpuset.ids(cpus & ~kubelet.cpus.reserved))
        number = draw(st.integers(0, len(spare)))
        for held in given:
            taken = draw(st.permutations(spare))[:number]
            if taken:
                held[f"held-{numa}"] = {"c": cpuset.of(taken)}
    one, other = (Node.restore(kubelet, cpu_assignments=held) for held in given)
    return one, other


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    def listed(name: str, most: int, fewest: int) -> list[dict[str, Any]]:
        number = draw(st.integers(fewest, most))
        return [
            container(
                f"{name}-{index}",
                draw(st.sampled_from(("1", "2", "3", "4", "6", "8", "500m"))),
                draw(st.sampled_from(("1Gi", "12Gi"))),
                **draw(st.sampled_from(({}, {"vendor_nic": "1"}))),
            )
            for index in range(number)
        ]

    init = listed("init", 1, 0)
    sidecar: bool = draw(st.booleans())
    if init and sidecar:
        init[0]["restartPolicy"] = "Always"
    whole = {"cpu": "8", "memory": "4Gi"}
    spec = {"resources": {"requests": whole, "limits": whole}} if draw(st.integers(0, 5)) == 0 else {}
    return pod("new", *listed("app", 2, 1), init=tuple(init), **spec)


def told(found: Node, newcomer: Pod) -> Any:
    """Return what a verdict says about a node."""
    kind = PodKind.of(replace(ClusterPod("default", "new", "new"), admission=newcomer))
    assert kind is not None
    return ask(kind, ClusterNode("n", allocatable={}).with_state(found))


@given(data=st.data())
@settings(max_examples=examples(100))
def test_amounts_give_the_same_result_whichever_cpus_are_free(data: st.DataObject) -> None:
    hardware, config = data.draw(configurations())
    nics = [Device(f"nic-{numa}", (numa,)) for numa in hardware.cpus_of_numa]
    kubelet = KubeletManagers.start(config, hardware, {NIC: nics})
    one, other = data.draw(fillings(hardware, kubelet))
    newcomer = data.draw(pods())
    said, elsewhere = told(one, newcomer), told(other, newcomer)
    event(f"{config.topology_manager_policy}: {said.answer.value}, follows: {said.by_amounts}")
    if amounts_of(one) == amounts_of(other) and said.by_amounts:
        assert said == elsewhere


@given(data=st.data())
@settings(max_examples=examples(25))
def test_a_forecast_of_many_nodes_says_what_each_says_alone(data: st.DataObject) -> None:
    hardware, config = data.draw(configurations())
    nics = [Device(f"nic-{numa}", (numa,)) for numa in hardware.cpus_of_numa]
    kubelet = KubeletManagers.start(config, hardware, {NIC: nics})
    pairs = [data.draw(fillings(hardware, kubelet)) for _ in range(3)]
    nodes = [
        ClusterNode(f"{number}-{which}", allocatable={}).with_state(state)
        for number, pair in enumerate(pairs)
        for which, state in enumerate(pair)
    ]
    kind = PodKind.of(replace(ClusterPod("default", "new", "new"), admission=data.draw(pods())))
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew(nodes)
    assert dict(forecast.verdicts) == {one.name: ask(kind, one) for one in nodes}


def filled(*taken: tuple[str, tuple[int, ...]], **config: Any) -> Node:
    """A node of 8 CPUs per NUMA node, CPU 0 reserved, of which pods hold some."""
    kubelet = KubeletManagers.start(configuration(**config), machine(), {})
    return Node.restore(kubelet, cpu_assignments={uid: {"c": cpuset.of(cpus)} for uid, cpus in taken})


def test_amounts_count_free_resources_by_numa_node_without_cpu_ids() -> None:
    # CPUs 0-3 and 8-11 are of NUMA node 0, 4-7 and 12-15 of NUMA node 1.
    assert amounts_of(filled(("a", (1, 2)))) == amounts_of(filled(("b", (3,)), ("c", (9,))))
    assert amounts_of(filled(("a", (1, 2)))) != amounts_of(filled(("a", (1, 4))))
    assert amounts_of(filled(("a", (1, 2)))) != amounts_of(filled(("a", (1, 2)), policy="restricted"))


def test_amounts_are_the_same_in_another_process() -> None:
    amounts = amounts_of(filled(("a", (1, 2))))
    assert pickle.loads(pickle.dumps(amounts)) == amounts  # noqa: S301 - our own


def test_one_numa_node_for_each_container_follows_from_amounts() -> None:
    assert follows_from_amounts(admit(node(), pod("p", container("one", 4), container("two", 2))))


def test_a_container_on_several_numa_nodes_does_not() -> None:
    wide = pod("p", container("c", 10))
    assert not follows_from_amounts(admit(node(policy="best-effort"), wide))


def test_cpus_handed_on_from_an_init_container_do_not() -> None:
    assert not follows_from_amounts(admit(node(), pod("p", container("c", 4), init=(container("i", 2),))))


@pytest.mark.parametrize(
    ("config", "containers", "follows"),
    [
        ({"cpu_options": {"distribute-cpus-across-numa": "true"}}, [2], False),
        ({"cpu_options": {"align-by-socket": "true"}, "policy": "best-effort"}, [2], False),
        ({"cpu_options": {"full-pcpus-only": "true"}}, [2], True),
        # Which of the free CPUs went to the first container says how many whole cores are left.
        ({"cpu_options": {"full-pcpus-only": "true"}}, [2, 2], False),
        ({"policy": "none"}, [2], False),
        ({"policy": "none", "cpus": "none"}, [2], True),
    ],
)
def test_settings_under_which_it_matters_which_cpus_are_free(
    config: dict[str, Any], containers: list[int], *, follows: bool
) -> None:
    wanted = pod("p", *(container(f"c{number}", cpus) for number, cpus in enumerate(containers)))
    assert follows_from_amounts(admit(node(**config), wanted)) == follows


def test_decision_with_too_narrow_hint_does_not_follow_from_amounts() -> None:
    """Under best-effort memory may lead a container to a NUMA node that has too few CPUs for it."""
    before = node(policy="best-effort")
    for name, cpus, memory in (("one", 5, "1Gi"), ("two", 1, "15500Mi")):
        before = admit(before, pod(name, container("c", cpus, memory))).node
    decision = admit(before, pod("p", container("c", 7, "4Gi")))
    assert decision.admitted
    assert decision.affinities["c"].affinity == 0b01
    assert len(zones_of(decision.node, "p")) == 2
    assert not follows_from_amounts(decision)


def test_a_pod_that_is_served_as_a_whole_does_not() -> None:
    whole = {"cpu": "4", "memory": "4Gi"}
    wanted = pod("p", container("c", 2), resources={"requests": whole, "limits": whole})
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    decision = admit(node(scope="pod", gates=gates), wanted)
    assert decision.admitted
    assert decision.whole is not None
    assert not follows_from_amounts(decision)


def test_a_rejection_does_not() -> None:
    assert not follows_from_amounts(admit(node(), pod("p", container("c", 10))))
