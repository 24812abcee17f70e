"""Outcomes, misses, and what admissions add to the kubelet-like counters."""

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from numazones.cluster.cluster import NO_ZONES, ClusterNode, ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.node import Node
from numazones.placement.model import kubelet_verdict
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.since_snapshot import SinceSnapshot
from numazones_operator.verification.causes import Accuracy
from numazones_operator.verification.rejection_advice import advice_of, explanation_of
from numazones_operator.verification.verifier import Verification, Verifier, alignment
from numazones_simulator import node_kinds
from tests.operator.pods import pod_body

STRICT = node_kinds.single_numa_node("node", "10.0.0.1").empty_node()
WHOLE_CORES = node_kinds.best_effort_full_cores("node", "10.0.0.1").empty_node()
CHIPLETS = node_kinds.single_numa_node_pods("node", "10.0.0.1").empty_node()

NODE = ClusterNode("node", allocatable={"cpu": 100_000, "memory": 1 << 40})


def pod(name: str = "a", *, cpu: int = 4, node: str = "node", **status: Any) -> ClusterPod:
    body = pod_body(name, cpu=cpu, nodeName=node)
    body["metadata"]["uid"] = f"uid-{name}"
    return ClusterPod.from_api(body | {"status": {"phase": "Pending", **status}})


STARTED: dict[str, Any] = {"containerStatuses": [{"name": "main"}]}
UNREADY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, None),
        ({"phase": "Running", **STARTED}, "Admitted"),
        ({"phase": "Pending", **STARTED}, "Admitted"),
        ({"phase": "Succeeded", **STARTED}, "Admitted"),
        ({"phase": "Failed", "reason": "TopologyAffinityError"}, "TopologyAffinityError"),
        ({"phase": "Failed", "reason": "OutOfcpu"}, "OutOfcpu"),
        # Rejected and deleted at once: the phase comes after the containers' statuses.
        ({"phase": "Pending", **STARTED, "conditions": [UNREADY | {"reason": "PodFailed"}]}, None),
        ({"phase": "Pending", **STARTED, "conditions": [UNREADY]}, "Admitted"),
        # It ran before it was evicted, so it had been admitted.
        ({"phase": "Failed", "reason": "Evicted", **STARTED}, "Admitted"),
        (
            {"phase": "Failed", "reason": "SMTAlignmentError", "message": "Pod was rejected: x", **STARTED},
            "SMTAlignmentError",
        ),
    ],
)
def test_what_the_kubelet_did_is_read_from_the_status(status: dict[str, Any], expected: str | None) -> None:
    assert kubelet_verdict(pod(**status)) == expected


class Watched:
    """A Verifier that remembers what it verified."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.now = 0.0
        self.verifier = Verifier(metrics=self.metrics, clock=lambda: self.now)

    def play(self, node: ClusterNode, *, cpu: int, **status: Any) -> Verification:
        bound = pod(cpu=cpu)
        self.verifier.bound(bound, node)
        verification = self.verifier.compare(pod(cpu=cpu, **status))
        assert verification is not None
        return verification


@pytest.mark.parametrize(
    ("cpu", "status", "predicted", "hit"),
    [
        (4, {"phase": "Running", **STARTED}, "Admissible", True),
        (4, {"phase": "Failed", "reason": "TopologyAffinityError"}, "Admissible", False),
        (40, {"phase": "Failed", "reason": "TopologyAffinityError"}, "Inadmissible", True),
        (40, {"phase": "Failed", "reason": "OutOfcpu"}, "Inadmissible", False),
        (40, {"phase": "Running", **STARTED}, "Inadmissible", False),
    ],
)
def test_predictions_are_held_against_outcomes(
    cpu: int, status: dict[str, Any], predicted: str, *, hit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    verification = watched.play(NODE.with_state(STRICT), cpu=cpu, **status)
    with caplog.at_level(logging.WARNING):
        assert not list(watched.verifier.judge())  # an explanation may still come
        watched.now += 60.0
        judged = [found.accuracy for _, found in watched.verifier.judge()]
    assert judged == ([] if hit else [Accuracy.MODEL])
    assert (verification.accuracy is Accuracy.RIGHT) is hit
    assert verification.expectation.predicted == predicted
    assert verification.hit is hit
    actual = status.get("reason", "Admitted")
    assert watched.metrics.outcomes.labels(predicted, actual)._value.get() == 1
    rejections = watched.metrics.registry.get_sample_value(
        "numazones_owner_rejections_total",
        {"namespace": "default", "owner_kind": "", "owner": "", "reason": actual},
    )
    assert rejections == (None if actual == "Admitted" else 1)
    # A miss is told with all that the model saw.
    assert ("container main: cpu offers" in caplog.text) is (not hit)


def test_unknown_node_gives_no_prediction_and_no_miss() -> None:
    watched = Watched()
    verification = watched.play(NODE.with_placement(NO_ZONES), cpu=4, phase="Running", **STARTED)
    assert (verification.expectation.predicted, verification.hit) == ("Unknown", None)
    assert verification.accuracy is Accuracy.UNKNOWN
    approximate = NODE.with_state(STRICT, approximate=True)
    assert watched.play(approximate, cpu=4, phase="Running", **STARTED).expectation.reason == "Approximate"


def test_pods_without_numa_requirements_and_late_pods_are_not_judged() -> None:
    watched = Watched()
    node = NODE.with_state(STRICT)
    assert watched.verifier.bound(pod(phase="Running", **STARTED), node) is None
    assert watched.verifier.compare(pod(phase="Running", **STARTED)) is None
    watched.verifier.bound(pod("gone"), node)
    watched.verifier.forget("uid-gone")
    assert watched.verifier.compare(pod("gone", phase="Running", **STARTED)) is None


@pytest.mark.parametrize(
    ("node", "cpu", "aligned", "failed"),
    [
        (STRICT, 4, [("container", "numa_node"), ("container", "uncore_cache")], []),
        (STRICT, 40, [], [("container", "numa_node")]),
        (CHIPLETS, 4, [("pod", "numa_node"), ("container", "uncore_cache")], []),
        (WHOLE_CORES, 4, [("container", "physical_cpu"), ("container", "uncore_cache")], []),
        (WHOLE_CORES, 3, [], [("container", "physical_cpu")]),
    ],
)
def test_alignment_is_counted_as_the_kubelet_counts_it(
    node: Node, cpu: int, aligned: list[tuple[str, str]], failed: list[tuple[str, str]]
) -> None:
    wanted = pod(cpu=cpu).admission
    assert wanted is not None
    assert alignment(admit(node, wanted)) == (aligned, failed)


class Events:
    """Events of the pods of a node, in order."""

    def __init__(self) -> None:
        self.since = SinceSnapshot()
        self.sequence = 0

    def bind(self, name: str, cpu: int, *, rejected: bool = False) -> None:
        self.sequence += 1
        self.since.bound(pod(name, cpu=cpu), sequence=self.sequence, rejected=rejected, now=0.0)

    def leave(self, name: str, now: float = 0.0) -> None:
        self.sequence += 1
        self.since.leaves(pod(name), sequence=self.sequence, now=now)

    def end(self, name: str, now: float = 0.0) -> None:
        self.sequence += 1
        self.since.ended(pod(name), sequence=self.sequence, now=now)


def taken(node: Node, name: str) -> Node:
    wanted = pod(name, cpu=20).admission
    assert wanted is not None
    return admit(node, wanted).node


def test_pods_since_the_snapshot_are_admitted_in_binding_order() -> None:
    events = Events()
    for name in ("first", "second", "third"):
        events.bind(name, 20)
    state = events.since.replay(STRICT)
    assert (state.holds("uid-first"), state.holds("uid-second"), state.holds("uid-third")) == (
        True,
        True,
        False,
    )


def test_pod_missing_from_zones_still_runs_its_init_containers() -> None:
    """As seen on a kubelet of 1.36: 20Gi on record while the init container runs, then the 1Gi of the app."""
    amounts = [{"cpu": "2", "memory": memory} for memory in ("20Gi", "1Gi")]
    init, app = ({"name": "c", "resources": {"requests": one, "limits": one}} for one in amounts)
    body = {
        "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
        "spec": {"containers": [app], "initContainers": [{**init, "name": "init"}], "nodeName": "node"},
    }
    since = SinceSnapshot()
    since.bound(ClusterPod.from_api(body), sequence=1, rejected=False, now=0.0)
    held = since.replay(STRICT).memory.assignments["uid-a"]
    assert sum(block.size for blocks in held.values() for block in blocks) == 20 << 30
    wanted = ClusterPod.from_api(body).admission
    assert wanted is not None
    started = admit(STRICT, wanted).node.memory.assignments["uid-a"]
    assert sum(block.size for blocks in started.values() for block in blocks) == 1 << 30


def test_creation_time_does_not_order_pods_found_together() -> None:
    """One that waited for long is bound after a younger one, which the zones show already."""
    since = SinceSnapshot()
    for name in ("a-waited-long", "b-younger"):
        since.bound(pod(name, cpu=20), sequence=0, rejected=False, now=0.0)
    shown = taken(STRICT, "b-younger")
    since.settle(shown, 0.0)
    assert since.replay(shown).holds("uid-a-waited-long")


def test_an_end_frees_what_comes_after_it_and_only_that() -> None:
    events = Events()
    for name in ("first", "second"):
        events.bind(name, 20)
    events.bind("third", 20, rejected=True)
    events.end("first")
    events.bind("fourth", 20)
    state = events.since.replay(STRICT)
    # The third was rejected before the first ended; nobody asks again for it.
    assert not state.holds("uid-third")
    assert state.holds("uid-fourth")
    assert not state.holds("uid-first")


def test_what_a_snapshot_shows_is_not_played_again() -> None:
    events = Events()
    events.bind("first", 20)
    shown = taken(STRICT, "first")
    assert events.since.replay(shown) == shown
    events.since.settle(shown, now=1.0)
    assert events.since.replay(STRICT) == STRICT


def test_an_old_snapshot_does_not_bring_an_ended_pod_back() -> None:
    events = Events()
    events.bind("first", 20)
    events.end("first")
    late = taken(STRICT, "first")
    events.since.settle(late, now=1.0)
    assert not events.since.replay(late).holds("uid-first")


def test_events_before_a_pod_that_the_snapshot_shows_are_settled() -> None:
    events = Events()
    events.bind("rejected", 20)  # by the kubelet, whatever the model thought
    events.bind("shown", 20)
    newer = taken(STRICT, "shown")
    events.since.settle(newer, now=1.0)
    assert events.since.replay(newer) == newer


def test_terminating_pod_holds_its_resources_until_its_end_is_presumed() -> None:
    state = taken(STRICT, "first")
    events = Events()
    events.leave("first")
    events.bind("second", 20)
    assert events.since.replay(state).holds("uid-first")
    gone = events.since.presumed_gone(state, now=1.0)
    assert gone == {"uid-first"}
    found = events.since.replay(state, gone=gone)
    assert (found.holds("uid-first"), found.holds("uid-second")) == (False, True)
    # What a later pod got stays its own, whatever becomes of the belief.
    events.end("first")
    assert events.since.presumed_gone(state, now=1.0) == frozenset()
    assert events.since.replay(state).holds("uid-second")


def test_belief_in_a_pods_end_yields_to_zones() -> None:
    state = taken(STRICT, "first")
    events = Events()
    events.leave("first", now=10.0)
    events.since.settle(state, now=11.0)  # these zones may have been read before
    assert events.since.presumed_gone(state, now=15.0) == {"uid-first"}
    assert events.since.presumed_gone(state, now=15.1) == frozenset()
    assert events.since.presumed_gone(STRICT, now=99.0) == {"uid-first"}  # its status is late

    events.bind("second", 20)
    both = taken(state, "second")
    assert both.holds("uid-second")
    events.since.settle(both, now=12.0)
    assert events.since.presumed_gone(both, now=12.0) == frozenset()
    assert events.since.presumed_gone(taken(STRICT, "second"), now=12.0) == {"uid-first"}


def test_pods_bound_while_another_left_keep_both_outcomes() -> None:
    state = taken(STRICT, "first")
    events = Events()
    events.leave("first")
    events.bind("second", 20)
    events.end("first")
    assert bool(events.since.may_be_ambiguous)
    beside, after = (events.since.replay(state, gone=gone) for gone in (None, frozenset[str]()))
    assert beside != after
    assert beside == remove(taken(state, "second"), "uid-first")
    assert after == taken(STRICT, "second")
    assert set(map(repr, events.since.possible_states(state))) == {repr(beside), repr(after)}
    # Zones that show one beside the other, or one alone, decide.
    for shown in (taken(state, "second"), taken(STRICT, "second")):
        events.since.settle(shown, now=1.0)
        assert not events.since.may_be_ambiguous
        assert events.since.replay(shown) == events.since.replay(shown, gone=frozenset())


def test_a_pod_that_nobody_came_beside_leaves_one_state() -> None:
    events = Events()
    events.leave("first")
    events.end("first")
    events.bind("second", 20)
    assert not events.since.may_be_ambiguous


def test_ended_pods_are_remembered_while_zones_are_missing() -> None:
    events = Events()
    for name in ("first", "second", "third"):  # the third fits where the first was, beside the second
        events.bind(name, 20 if name == "first" else 10)
        if name == "second":
            events.end("first", now=1.0)
    events.end("second", now=2.0)
    before = events.since.replay(STRICT)
    events.since.settle(STRICT, now=300.0)
    assert events.since.replay(STRICT) == before
    events.since.settle(STRICT, now=1000.0)
    assert len(events.since) == 1


def test_events_do_not_accumulate_while_zones_never_change() -> None:
    for state in (STRICT, None):
        events = Events()
        for number in range(500):
            events.bind(f"p{number}", 1)
            events.leave(f"p{number}", now=float(number))
            events.end(f"p{number}", now=float(number))
            events.since.settle(state, float(number))
        assert len(events.since) <= 2 * 62


def test_pod_that_runs_against_the_model_is_believed() -> None:
    events = Events()
    events.bind("a", 20, rejected=True)
    assert not events.since.replay(STRICT).holds("uid-a")
    events.since.admitted_after_all(pod("a"))
    assert events.since.replay(STRICT).holds("uid-a")


def test_rejection_names_the_holders_and_the_cure() -> None:
    node = NODE.with_state(STRICT)
    for held in (pod("holder", cpu=20), pod("other", cpu=25)):
        assert node.state is not None
        assert held.admission is not None
        node = node.with_state(admit(node.state, held.admission).node).with_pod(held)
    rejected = {"phase": "Failed", "reason": "TopologyAffinityError"}
    verification = Watched().play(node, cpu=12, **rejected)
    explanation = explanation_of(verification)
    assert (
        "the missing resources on NUMA node 0 are held by default/holder (20 exclusive CPUs)" in explanation
    )
    assert explanation[-1].startswith("needs 12 exclusive CPUs on one NUMA node; at most 10 are free")
    assert advice_of(verification)[0] == "request 10 CPUs instead of 12 in container main"


def test_what_the_model_did_not_foresee_it_does_not_explain() -> None:
    surprised = Watched().play(NODE.with_state(STRICT), cpu=4, phase="Failed", reason="TopologyAffinityError")
    assert (explanation_of(surprised), advice_of(surprised)) == ((), ())
