"""Decisions in plain words."""

from numazones_koordinator.admission import admit
from numazones_koordinator.explanation import explain
from numazones_koordinator.node import Node
from tests.models.koordinator.building import detail, node, node_object, nrt, pod, running


def test_an_admitted_pod_is_told_what_it_got_and_why() -> None:
    asked = pod(policy="SingleNUMANode", cpu="4", memory="2Gi", nvidia="1")
    explanation = explain(admit(node(gpus=[0, 1]), asked))
    either = "NUMA node 0 (preferred, score 68), NUMA node 1 (preferred, score 68), NUMA nodes 0-1 (score 84)"
    gpus = "NUMA node 0 (preferred, score 500), NUMA node 1 (preferred, score 0), NUMA nodes 0-1 (score 500)"
    assert explanation.lines() == (
        "policy SingleNUMANode, set by the pod",
        f"cpu could use {either}",
        f"memory could use {either}",
        f"gpu could use {gpus}",
        "the pod requires exclusivity (by default, as it has a policy); no NUMA node counts as used",
        "admitted on NUMA node 0; with CPUs 0-1,8-9; cpu 4, memory 2Gi of NUMA node 0; gpu 0",
    )


def test_a_rejected_pod_is_told_who_is_in_its_way() -> None:
    taken = admit(node(policy="Restricted"), pod("a", policy="Restricted", cpu="2")).node
    explanation = explain(admit(taken, pod("b", policy="Restricted", exclusive="Required", cpu="10")))
    assert explanation.policy == "policy Restricted, set by both the pod and the node"
    assert explanation.exclusivity == (
        "the pod requires exclusivity (by its annotation); NUMA node 0 counts as single, so no set of "
        "several NUMA nodes with it is preferred"
    )
    assert explanation.verdict == ("rejected at Filter: Unaligned NUMA Hint cause cpu prefer [11] among [11]")
    shared = admit(node(), pod("a", policy="Restricted", cpu="10")).node
    alone = explain(admit(shared, pod("b", policy="SingleNUMANode", cpu="1")))
    assert "NUMA nodes 0, 1 count as shared, so none of them alone is preferred" in alone.exclusivity


def test_policies_that_contradict_and_none_at_all() -> None:
    contradicting = explain(admit(node(policy="BestEffort"), pod(policy="Restricted", cpu="1")))
    assert contradicting.lines() == (
        "the pod's policy Restricted and the node's policy BestEffort conflict",
        "rejected permanently at Filter: node(s) NUMA Topology policy not match",
    )
    assert explain(admit(node(), pod(qos="LS", cpu="1"))).lines() == (
        "neither the pod nor the node has a NUMA topology policy: nothing is aligned",
        "admitted; nothing is recorded for it",
    )
    assert (
        explain(admit(node(policy="BestEffort"), pod(cpu="1"))).policy == "policy BestEffort, set by the node"
    )
    assert "requests nothing" in explain(admit(node(), pod())).verdict
    assert "before any node" in explain(admit(node(), pod(cpu="1500m"))).verdict


def test_resources_that_fit_nowhere_and_devices_that_fail() -> None:
    full = explain(admit(node(gpus=[0]), pod(policy="Restricted", qos="LS", cpu="20", nvidia="2")))
    assert "cpu fits on no set of NUMA nodes" in full.hints
    assert "devices: Insufficient NUMA Scoped Devices" in full.hints


def test_many_hints_are_told_by_the_preferred_ones() -> None:
    explanation = explain(admit(node(5), pod(policy="SingleNUMANode", cpu="2")))
    assert explanation.hints[0].endswith("and 26 larger sets")


def test_defects_are_named_where_they_decide() -> None:
    bare = explain(admit(node(topology=False), pod(policy="SingleNUMANode", qos="LS", cpu="2")))
    assert "no CPU topology: nothing is recorded" in bare.defects[0]
    one = explain(admit(node(1), pod(policy="SingleNUMANode", cpu="2")))
    assert "nothing is charged to the NUMA nodes" in one.defects[0]
    shared = explain(admit(node(), pod(policy="SingleNUMANode", qos="LS", cpu="2")))
    assert "exclusivity looks at CPU sets alone" in shared.defects[0]
    best = explain(admit(node(), pod(policy="BestEffort", qos="LS", cpu="20")))
    assert "may still not fit at Reserve" in best.defects[0]
    extra = explain(admit(node(3, sockets=3).bind(running("a", "4,8")), pod(cpu="13")))
    assert "more CPUs than it requests" in extra.defects[0]
    topology = nrt(detail(), {0: {"cpu": "8"}, 1: {"cpu": "8"}}, policies=["RestrictedPodLevel"])
    ignored = explain(admit(Node.read(node_object(), topology), pod(cpu="1")))
    assert "ignores the topology policy RestrictedPodLevel" in ignored.defects[0]
    assert explain(admit(node(), pod(policy="SingleNUMANode", cpu="2"))).defects == ()
