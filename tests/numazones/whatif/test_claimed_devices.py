"""Pods with claims in a run: devices are allocated as they come, and free once they have left."""

import pickle
from dataclasses import replace
from typing import Any

from numazones.cluster.cluster import ClusterPod
from numazones.whatif import trial
from numazones.whatif.node_template import NodeTemplate, start_nodes
from numazones.whatif.trial import TrialResult
from numazones.whatif.workload import Leaving, WorkloadEvent
from tests.numazones.dra.building import claim, device, resource_slice, result
from tests.numazones.prediction.test_device_answer import CLASS, asking, nodes, pod, template


def play(*events: WorkloadEvent, objects: tuple[dict[str, Any], ...]) -> TrialResult:
    """Play events on a node that starts without pods; templates are sent to processes."""
    sent = pickle.dumps([NodeTemplate.of(node) for node in nodes(CLASS, *objects)])
    templates = pickle.loads(sent)  # noqa: S301 - our own
    return trial.run(start_nodes(templates), events)


def named(uid: str, like: ClusterPod) -> ClusterPod:
    admission = None if like.admission is None else replace(like.admission, uid=uid, name=uid)
    return replace(like, uid=uid, name=uid, admission=admission)


ONE = resource_slice(device("gpu-0", 1))
FIRST, SECOND = (named(uid, pod(1, resourceClaimTemplateName="one")) for uid in ("first", "second"))
UNSCHEDULABLE = (("Unschedulable", 1),)


def test_devices_run_out_and_come_back() -> None:
    objects = (ONE, template(), claim(name="other"))
    assert play(FIRST, SECOND, objects=objects).rejected == UNSCHEDULABLE
    assert play(FIRST, Leaving("first"), SECOND, objects=objects).rejected == ()


def test_what_pods_of_the_cluster_hold_is_free_at_first() -> None:
    held = claim(result("gpu-0"), name="other", pods=("gone",))
    assert play(FIRST, objects=(ONE, template(), held)).admitted == 1
    unused = claim(result("gpu-0"), name="other")
    assert play(FIRST, objects=(ONE, template(), unused)).rejected == UNSCHEDULABLE


def test_pods_that_share_a_claim_free_it_together() -> None:
    one, other = (named(uid, pod(1, resourceClaimName="claim")) for uid in ("one", "other"))
    objects = (ONE, template(), claim())
    assert play(one, other, objects=objects).admitted == 2
    assert play(one, other, Leaving("one"), FIRST, objects=objects).rejected == UNSCHEDULABLE
    assert play(one, other, Leaving("one"), Leaving("other"), FIRST, objects=objects).admitted == 3


def test_devices_away_from_the_cpus_count_as_crossing() -> None:
    near = resource_slice(device("gpu-0", 0))
    assert [play(FIRST, objects=(gpus, template(), claim())).crossing for gpus in (near, ONE)] == [0, 1]


def test_extended_resources_are_allocated_too() -> None:
    first, second = (named(uid, asking(1)) for uid in ("first", "second"))
    assert play(first, second, objects=(ONE, claim())).rejected == UNSCHEDULABLE


def test_what_the_allocator_cannot_tell_is_undecided() -> None:
    lost = named("lost", pod(1, resourceClaimName="lost"))
    outcome = play(replace(lost, node="worker-1"), objects=(ONE, claim()))
    assert outcome.rejected == (("Undecided", 1),)
