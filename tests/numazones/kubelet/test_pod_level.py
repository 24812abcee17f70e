"""Pods with pod-level resources that the kubelet serves as a whole (gate PodLevelResourceManagers)."""

from typing import Any

import pytest

from numazones import cpuset
from numazones.kubelet.admission import Admission, PodAllocation, admit, remove
from numazones.kubelet.explanation import explain
from numazones.kubelet.hints import Hint
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.numazones.kubelet.building import GI, container, gpus, machine, node, pod, sidecar

GATE = {"PodLevelResourceManagers": True}


def managed(**config: Any) -> Node:
    """Two NUMA nodes of 8 CPUs, CPU 0 reserved; scope pod unless told otherwise."""
    return node(machine(2, cores=4), **{"scope": "pod", "gates": GATE, **config})


def whole(*containers: dict[str, Any], cpu: str = "4", memory: str = "4Gi", **more: Any) -> Pod:
    """A pod with equal pod-level requests and limits."""
    amounts = {"cpu": cpu, "memory": memory}
    return pod("u", *containers, resources={"requests": amounts, "limits": amounts}, **more)


def sharing(name: str, **more: Any) -> dict[str, Any]:
    """A container without resources of its own."""
    return {"name": name, **more}


def cpus(admission: Admission) -> dict[str, str]:
    return {name: cpuset.format(given.cpus) for name, given in admission.containers.items()}


def memory(admission: Admission) -> dict[str, int]:
    return {
        name: sum(block.size for block in given.memory) // GI for name, given in admission.containers.items()
    }


def test_pod_gets_one_set_of_cpus_which_its_containers_divide() -> None:
    start = managed()
    admission = admit(start, whole(container("own", 2), sharing("a"), sharing("b")))
    assert admission.whole == PodAllocation(cpuset.parse("1-2,9-10"), (Block(0b01, "memory", 4 * GI),))
    assert cpus(admission) == {"own": "1,9", "a": "2,10", "b": "2,10"}
    assert memory(admission) == {"own": 1, "a": 3, "b": 3}
    assert {given.affinity for given in admission.containers.values()} == {Hint(0b01, True)}
    assert cpuset.format(admission.node.cpus.default) == "0,3-8,11-15"
    assert admission.node.memory.users[0] == 1
    assert remove(admission.node, "u") == start


def test_sidecars_keep_their_part_and_init_containers_return_theirs() -> None:
    init = (
        container("first", 4, "4Gi"),
        sidecar("side", 2),
        sharing("after"),
        sharing("helper", restartPolicy="Always"),
    )
    admission = admit(managed(), whole(container("app", 1), sharing("rest"), init=init))
    given = cpus(admission)
    assert given == {
        "first": "1-2,9-10",
        "side": "1,9",
        "after": "2,10",
        "helper": "10",
        "app": "2",
        "rest": "10",
    }
    assert memory(admission) == {"first": 4, "side": 1, "after": 3, "helper": 2, "app": 1, "rest": 2}


def test_ended_init_containers_are_forgotten_and_give_nothing_back() -> None:
    admission = admit(managed(), whole(sharing("app"), init=(container("i"),)))
    assert set(admission.node.memory.assignments["u"]) == {"app"}
    assert admission.node.memory.reserved["memory"][0] == 4 * GI


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("early", [False, True])
def test_containers_that_share_need_something_to_share(resource: str, early: bool) -> None:  # noqa: FBT001
    amounts = (4, "1Gi") if resource == "cpu" else (1, "4Gi")
    if early:
        asked = whole(container("own"), init=(sidecar("side", *amounts), sharing("late")))
        noun = {"cpu": "cpus", "memory": "memory"}[resource]
        message = f"pod rejected, pod has shared init containers but no {noun} available for them"
        sentence = (
            f"its sidecars take all the {resource} that the pod has as a whole, "
            f"which leaves none for init containers without {resource} of their own"
        )
    else:
        asked = whole(container("own", *amounts), sharing("rest"))
        noun = {"cpu": "cpus", "memory": "memory"}[resource]
        message = (
            f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
            f"leaving no {noun} for shared containers"
        )
        sentence = (
            f"some of its containers take all the {resource} that the pod has as a whole, "
            f"which leaves none for containers without {resource} of their own"
        )
    rejected = admit(managed(policy="best-effort"), asked)
    assert (rejected.reason, rejected.message) == ("EmptyPodSharedPoolError", message)
    assert explain(rejected).shortfall == sentence
    strict = admit(managed(), asked)
    assert (strict.reason, strict.message) == (
        "TopologyAffinityError",
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
    )
    assert explain(strict).shortfall == sentence
    (merge,) = explain(strict).merges
    assert [(name, hints) for name, hints in merge.hints if hints == (Hint(None, False),)] == [
        (resource, (Hint(None, False),))
    ]


@pytest.mark.parametrize(
    ("amounts", "sentence"),
    [
        ({"cpu": "16"}, "needs 16 exclusive CPUs, but only 15 are free"),
        (
            {"memory": "40Gi"},
            (
                "the Topology Manager chose NUMA node 0 for it, but 40Gi of memory is not available there, "
                "even together with other NUMA nodes; at most 31Gi memory is free, on NUMA nodes 0-1"
            ),
        ),
    ],
)
def test_pod_level_shortage_is_reported_without_alignment(amounts: dict[str, str], sentence: str) -> None:
    rejected = admit(managed(policy="best-effort"), whole(container("own", 2), sharing("rest"), **amounts))
    assert rejected.reason == "UnexpectedAdmissionError"
    assert explain(rejected).shortfall == sentence


def test_the_smt_rule_counts_the_pod_and_not_its_containers() -> None:
    full = {"full-pcpus-only": "true"}
    odd = whole(container("one", 1), sharing("rest"), cpu="4")
    assert admit(managed(cpu_options=full), odd).admitted
    rejected = admit(managed(cpu_options=full), whole(sharing("a"), cpu="3"))
    assert rejected.message == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert explain(rejected).shortfall.startswith("requests 3 CPUs")


def test_pod_with_fractional_cpus_gets_pod_memory_but_no_cpus() -> None:
    admission = admit(managed(), whole(container("own", 2), cpu="2500m"))
    assert admission.whole == PodAllocation(0, (Block(0b01, "memory", 4 * GI),))
    assert cpus(admission) == {"own": ""}


def test_devices_are_hinted_for_but_come_only_when_containers_start() -> None:
    start = node(machine(2, cores=4), devices=gpus((1,)), scope="pod", gates=GATE, policy="single-numa-node")
    admission = admit(start, whole(container("own", 2, vendor_gpu="1"), sharing("rest")))
    assert admission.containers["own"].affinity == Hint(0b10, True)
    assert admission.containers["own"].devices == {}


def test_non_guaranteed_pod_gets_nothing_exclusive() -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    admission = admit(managed(), pod("u", container("own", 2), resources=resources))
    assert admission.admitted
    assert admission.whole is None
    assert cpus(admission) == {"own": ""}


def test_in_scope_container_each_container_is_served_by_itself() -> None:
    start = managed(scope="container", memory="None")
    admission = admit(start, whole(container("own", 2), sharing("rest")))
    assert (admission.whole, cpus(admission)) == (None, {"own": "1,9", "rest": ""})
    rejected = admit(start, whole(container("own", 16), cpu="16"))
    assert rejected.message == (
        "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
    )


def test_container_scope_finds_nothing_for_a_container_without_memory() -> None:
    rejected = admit(managed(scope="container"), whole(sharing("a")))
    assert "failed to get the default NUMA affinity" in rejected.message
    assert explain(rejected).shortfall == (
        "requests no memory, which the static Memory Manager accepts only if other resources bind "
        "the container to NUMA nodes"
    )
    assert admit(managed(scope="container", policy="best-effort"), whole(sharing("a"))).admitted


def test_container_without_memory_is_rejected_if_its_nodes_are_grouped() -> None:
    start = admit(managed(scope="container", policy="restricted"), pod("first")).node
    rejected = admit(start, whole(sharing("a")))
    assert "preferred hint violates NUMA node allocation" in rejected.message
    assert explain(rejected).shortfall == (
        "must use NUMA nodes 0-1 together; memory in use binds NUMA node 0 by itself, and other pods can "
        "use memory there only in the same combination"
    )


def test_policy_none_knows_no_pods_as_a_whole() -> None:
    admission = admit(managed(policy="none", memory="None"), whole(container("own", 2), sharing("rest")))
    assert (admission.whole, cpus(admission)) == (None, {"own": "1,9", "rest": ""})


def test_memory_without_plain_number_is_ignored_for_pods_only() -> None:
    start = managed(policy="best-effort")
    odd = whole(container("own", 2), memory="1Pi")
    assert admit(start, odd).whole == PodAllocation(cpuset.parse("1-2,9-10"), ())
    rejected = admit(start, whole(container("own", 2, "1.5Gi"), cpu="4"))
    assert (rejected.reason, rejected.message) == (
        "EmptyPodSharedPoolError",
        "[memorymanager] failed to represent quantity as int64",
    )
    assert "not a whole number of bytes" in explain(rejected).shortfall


def test_restart_rejects_pod_level_pod_with_sharing_containers() -> None:
    """As the kubelet does: recorded shares do not equal what the containers ask for by themselves."""
    admission = admit(managed(), whole(container("own", 2), sharing("rest")))
    assert not admit(admission.node, admission.pod).admitted


def test_indivisible_cpus_are_lost_until_the_kubelet_restarts() -> None:
    """It takes them before it divides them; an API server lets no pod ask for less than its parts."""
    start = managed(policy="best-effort", memory="None")
    rejected = admit(start, whole(container("a", 3), container("b", 2), cpu="4"))
    assert "not enough cpus available to satisfy request: requested=2, available=1" in rejected.message
    assert cpuset.format(start.cpus.default & ~rejected.node.cpus.default) == "1-2,9-10"
    assert (rejected.whole, rejected.containers) == (None, {})
    assert remove(rejected.node, "u") == rejected.node
