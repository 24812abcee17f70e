"""Reasons why a running pod is not aligned, in sentences, and cures: only what was tried on a copy."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from numazones.advice.misalignment import Misalignment, misalignment_of
from numazones.alignment import pod_alignment as alignment
from numazones.alignment.alignable import Alignable
from numazones.cluster.cluster import ClusterNode
from numazones.rebalance.candidates import Situation
from numazones.rebalance.dump import situation_of
from numazones.rebalance.moves import evict, place
from tests.laws import examples
from tests.numazones.dra.test_claimed_alignment import dump as dump_with_claim

Nodes = Callable[[random.Random], list[ClusterNode]]


def spread(build: Any, policy: str, *pods: tuple[str, int], name: str = "n1") -> ClusterNode:
    """A node of two NUMA nodes, 3 and 4 CPUs, with pods that came in this order."""
    node: ClusterNode = build.node(name, policy=policy)
    return build.put(node, *(build.pod(pod, cpus) for pod, cpus in pods))  # type: ignore[no-any-return]


def without(node: ClusterNode, name: str) -> ClusterNode:
    (gone,) = [pod for pod in node.pods.values() if pod.name == name]
    return evict(node, gone)


def under(node: ClusterNode, policy: str) -> ClusterNode:
    """The node after its kubelet was restarted with another policy."""
    state = node.state
    assert state is not None
    return node.with_state(state.with_topology_settings(policy=policy))


def explained(situation: Situation, name: str = "wide") -> Misalignment | None:
    (pod,) = [
        pod for node in situation.cluster.nodes.values() for pod in node.pods.values() if pod.name == name
    ]
    return misalignment_of(pod, situation)


def said(found: Misalignment | None) -> tuple[str, Iterable[str], Iterable[str]]:
    """ALIGNABLE, and the sentences after the one that says how it lies."""
    assert found is not None
    return found.alignable, found.why[1:], found.help


LET_IN = (
    "policy best-effort admitted it: the kubelet prefers one NUMA node, but uses several if none has "
    "room; unless the policy has changed since, none had room when the pod arrived"
)


def test_newly_freed_room_is_named_with_the_eviction_needed(build: Any) -> None:
    node = without(spread(build, "best-effort", ("a", 2), ("gone", 3), ("wide", 2)), "gone")
    found = explained(build.situation([node]))
    assert found is not None
    assert found.why[0] == "container c has 1 CPU on NUMA node 0 and 1 on NUMA node 1"
    assert said(found) == (
        "now",
        (LET_IN, "n1 could align it now on NUMA node 1"),
        (
            (
                "evict it: its replacement will be aligned, on NUMA node 1 of n1 (kubectl numazones plan "
                "--align default/wide)"
            ),
        ),
    )


def test_holders_of_the_missing_resources_are_named(build: Any) -> None:
    node = spread(build, "best-effort", ("a", 2), ("b", 3), ("wide", 2))
    could, (_, missing), help_ = said(explained(build.situation([node, build.node("n2")])))
    assert could == "emptier"
    assert missing == (
        "n1 could align it if other pods left: needs 2 exclusive CPUs on one NUMA node; at most 1 is free "
        "on one NUMA node (NUMA node 0 of n1); held by default/a (2 exclusive CPUs)"
    )
    assert help_ == (
        (
            "evict it: its replacement will be aligned, on NUMA node 0 of n2, if it is confined to that node "
            "(kubectl numazones plan --align default/wide)"
        ),
    )


def test_request_larger_than_a_numa_node_gets_a_smaller_suggestion(build: Any) -> None:
    could, why, help_ = said(explained(build.situation([spread(build, "best-effort", ("wide", 5))])))
    assert could == "never"
    assert why == (
        "policy best-effort admitted it: no single NUMA node is large enough, so several are allowed",
        (
            "n1 could not align it even if the node were empty: needs 5 exclusive CPUs on one NUMA "
            "node, more than any has even when empty; at most 4 are free on one NUMA node (NUMA node 1 of n1)"
        ),
    )
    cure = (
        "request 4 CPUs: container c requests 5 CPUs; a NUMA node can provide at most 4, even when it is "
        "empty"
    )
    assert help_ == (cure,)


def test_policy_none_misaligns_again_unless_it_changes(build: Any) -> None:
    node = without(spread(build, "none", ("a", 1), ("gone", 1), ("wide", 3)), "gone")
    could, why, help_ = said(explained(build.situation([node])))
    assert could == "now"
    assert why == (
        "policy none admitted it: the kubelet ignores NUMA nodes",
        "n1 could align it now on NUMA node 1",
    )
    assert help_ == (
        (
            "set topologyManagerPolicy: best-effort on n1 and recreate the pod, which will then be aligned; "
            "with the current policy, it would be misaligned again (spanning 2 NUMA nodes)"
        ),
    )


def test_pod_that_no_plan_moves_gets_reason_and_manual_cure(build: Any) -> None:
    node = without(spread(build, "best-effort", ("a", 2), ("gone", 3), ("wide", 2)), "gone")
    found = said(explained(build.situation([node], replicas={"wide-rs": 1})))
    assert found[2] == (
        (
            "recreate it: n1 would then align it; no plan does this: pod is the "
            "only replica of its workload; to allow its eviction, set limits.evictSingleReplicas"
        ),
    )


def test_policy_that_would_reject_misalignment_is_not_blamed(build: Any) -> None:
    node = under(spread(build, "best-effort", ("a", 2), ("b", 3), ("wide", 2)), "restricted")
    _, (blamed, _), _ = said(explained(build.situation([node])))
    assert (
        blamed
        == "policy restricted would not admit it like this, so it was admitted under different settings"
    )


def test_devices_of_claims_are_nobodys_but_the_schedulers() -> None:
    dump = dump_with_claim("gpu-0", cpus=4)
    found = explained(situation_of(dump, dump.moment), "web")
    assert found is not None
    assert found.why == (
        "container main has 4 CPUs on NUMA node 1; gpu.example/gpu-0 on NUMA node 0",
        (
            "the kubelet admitted it because the scheduler allocates the devices of its claims, and Topology "
            "Manager policies do not consider those devices"
        ),
        "it is unknown whether worker-1 could align it, because the scheduler chooses its devices",
    )
    assert (found.alignable, found.help) == (Alignable.UNKNOWN, ())


def test_devices_without_cpus_are_on_their_own_numa_nodes() -> None:
    dump = dump_with_claim("gpu-0", "gpu-1", cpus=0)
    found = explained(situation_of(dump, dump.moment), "web")
    assert found is not None
    assert found.why[0] == (
        "container main has gpu.example/gpu-0 on NUMA node 0; gpu.example/gpu-1 on NUMA node 1"
    )


def test_memory_that_spans_numa_nodes_is_named(build: Any) -> None:
    kept = {
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "kubeReserved": {"memory": "924Mi"},
    }
    amounts = {"cpu": "2", "memory": "100Gi"}
    resources = {"requests": amounts, "limits": amounts}
    wide = build.pod("wide", 2, spec={"containers": [{"name": "c", "resources": resources}]})
    found = explained(build.situation([build.put(build.node("n1", policy="best-effort", **kept), wide)]))
    assert found is not None
    assert (found.why[0], found.alignable) == (
        "container c has 2 CPUs on NUMA node 0; memory: 50Gi on NUMA node 0 and 50Gi on NUMA node 1",
        Alignable.NEVER,
    )


def test_nothing_is_said_of_a_pod_that_is_aligned(build: Any) -> None:
    assert explained(build.situation([spread(build, "best-effort", ("wide", 2))])) is None


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_advice_holds_when_it_is_followed(build: Any, seed: int) -> None:
    """The result of an eviction, or of a new pod on the same node, is the one that the advice names."""
    draw = random.Random(seed)
    node = build.node("n1", policy="best-effort", cpus=5)
    pods = [build.pod(f"p{number}", draw.choice([1, 2, 3])) for number in range(8)]
    for pod in pods:
        node = place(node, pod).node or node
        if draw.random() < 0.3 and node.pods:
            node = evict(node, draw.choice(list(node.pods.values())))
    single = draw.random() < 0.5
    owners = {f"{pod.name}-rs": 1 if single else 10 for pod in pods}
    situation = build.situation([node], replicas=owners)
    for pod in node.pods.values():
        found = misalignment_of(pod, situation)
        if found is None:
            continue
        freed = evict(node, pod)
        again = place(freed, replace(pod, node="", phase="Pending")).node
        helped = again is not None and (lying := alignment.of_pod(again, pod)) is not None and lying.aligned
        assert helped == any(line.startswith(("evict it", "recreate it")) for line in found.help)
        assert helped == (found.alignable is Alignable.NOW)
