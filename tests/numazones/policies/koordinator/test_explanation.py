"""Decisions in plain words."""

from numazones.policies.koordinator.admission import admit
from numazones.policies.koordinator.node import Node

from .building import detail, node, node_object, nrt, pod, running


def test_an_admitted_pod_is_told_what_it_got_and_why() -> None:
    asked = pod(policy="SingleNUMANode", cpu="4", memory="2Gi", nvidia="1")
    explanation = admit(node(gpus=[0, 1]), asked).explanation
    either = "NUMA node 0 (preferred, score 68), NUMA node 1 (preferred, score 68), NUMA nodes 0-1 (score 84)"
    gpus = "NUMA node 0 (preferred, score 500), NUMA node 1 (preferred, score 0), NUMA nodes 0-1 (score 500)"
    assert explanation.lines() == (
        "policy SingleNUMANode, the pod's",
        f"cpu could use {either}",
        f"memory could use {either}",
        f"gpu could use {gpus}",
        "the pod requires exclusivity (by default, as it has a policy); no NUMA node counts as used",
        "admitted on NUMA node 0; with CPUs 0-1,8-9; cpu 4, memory 2Gi of NUMA node 0; gpu 0",
    )


def test_a_refused_pod_is_told_who_is_in_its_way() -> None:
    taken = admit(node(policy="Restricted"), pod("a", policy="Restricted", cpu="2")).node
    explanation = admit(taken, pod("b", policy="Restricted", exclusive="Required", cpu="10")).explanation
    assert explanation.policy == "policy Restricted, the pod's and the node's"
    assert explanation.exclusivity == (
        "the pod requires exclusivity (by its annotation); NUMA node 0 is single, so that no set of several "
        "NUMA nodes with it is preferred"
    )
    assert explanation.verdict == ("refused at Filter: Unaligned NUMA Hint cause cpu prefer [11] among [11]")
    shared = admit(node(), pod("a", policy="Restricted", cpu="10")).node
    alone = admit(shared, pod("b", policy="SingleNUMANode", cpu="1")).explanation
    assert "NUMA nodes 0, 1 are shared, so that none of them alone is preferred" in alone.exclusivity


def test_policies_that_contradict_and_none_at_all() -> None:
    contradicting = admit(node(policy="BestEffort"), pod(policy="Restricted", cpu="1")).explanation
    assert contradicting.lines() == (
        "the pod's policy Restricted and the node's policy BestEffort do not go together",
        "refused for good at Filter: node(s) NUMA Topology policy not match",
    )
    assert admit(node(), pod(qos="LS", cpu="1")).explanation.lines() == (
        "neither the pod nor the node has a NUMA topology policy: nothing is aligned",
        "admitted; nothing is recorded for it",
    )
    assert (
        admit(node(policy="BestEffort"), pod(cpu="1")).explanation.policy == "policy BestEffort, the node's"
    )
    assert "asks for nothing" in admit(node(), pod()).explanation.verdict
    assert "before any node" in admit(node(), pod(cpu="1500m")).explanation.verdict


def test_resources_that_fit_nowhere_and_devices_that_fail() -> None:
    full = admit(node(gpus=[0]), pod(policy="Restricted", qos="LS", cpu="20", nvidia="2")).explanation
    assert "cpu fits on no set of NUMA nodes" in full.hints
    assert "devices: Insufficient NUMA Scoped Devices" in full.hints


def test_many_hints_are_told_by_the_preferred_ones() -> None:
    explanation = admit(node(5), pod(policy="SingleNUMANode", cpu="2")).explanation
    assert explanation.hints[0].endswith("and 26 larger sets")


def test_defects_are_named_where_they_decide() -> None:
    bare = admit(node(topology=False), pod(policy="SingleNUMANode", qos="LS", cpu="2")).explanation
    assert "no CPU topology: nothing is recorded" in bare.defects[0]
    one = admit(node(1), pod(policy="SingleNUMANode", cpu="2")).explanation
    assert "nothing is charged to the NUMA nodes" in one.defects[0]
    shared = admit(node(), pod(policy="SingleNUMANode", qos="LS", cpu="2")).explanation
    assert "exclusivity looks at CPU sets alone" in shared.defects[0]
    best = admit(node(), pod(policy="BestEffort", qos="LS", cpu="20")).explanation
    assert "may still not fit at Reserve" in best.defects[0]
    extra = admit(node(3, sockets=3).bind(running("a", "4,8")), pod(cpu="13")).explanation
    assert "more CPUs than it asks for" in extra.defects[0]
    topology = nrt(detail(), {0: {"cpu": "8"}, 1: {"cpu": "8"}}, policies=["RestrictedPodLevel"])
    ignored = admit(Node.read(node_object(), topology), pod(cpu="1")).explanation
    assert "ignores the topology policy RestrictedPodLevel" in ignored.defects[0]
    assert admit(node(), pod(policy="SingleNUMANode", cpu="2")).explanation.defects == ()
