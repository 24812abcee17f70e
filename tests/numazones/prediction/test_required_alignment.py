"""Pods that require alignment, and nodes that are preferred because they align."""

from dataclasses import replace

import pytest

from numazones.cluster.cluster import ClusterPod
from numazones.cluster.pod_kind import ALIGNMENT, PodKind, relevant
from numazones.prediction.arrivals import Arrivals
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    ask,
    place_beside,
    predict,
)
from numazones.prediction.node_choice import ASKING, Ranking
from numazones.prediction.scheduler_reasons import scheduler_reason
from numazones.prediction.verdict import NodeAnswer
from tests.numazones.dra.building import claim, device, resource_slice, result
from tests.numazones.prediction.test_device_answer import CLASS, MINE, Body, nodes, pod


def requiring(plain: ClusterPod, value: str = "required") -> ClusterPod:
    return replace(plain, annotations={ALIGNMENT: value})


def gpus(node: str, numa: int | None) -> Body:
    return resource_slice(device("gpu-0", numa), name=f"slice-{node}", node=node, pool=node)


NEEDY = requiring(MINE)
WANTED = "the pod requires alignment (annotation numazones.io/alignment)"


@pytest.mark.parametrize(
    ("numa", "verdict", "reason"),
    [
        (1, ADMISSIBLE, ""),
        (0, INADMISSIBLE, "NotAligned"),
        (None, UNKNOWN, "AlignmentNotKnown"),
    ],
)
def test_requiring_pod_fits_only_where_devices_and_cpus_lie_together(
    numa: int | None, verdict: str, reason: str
) -> None:
    there = nodes(CLASS, claim(), gpus("a", numa), names=("a",))
    found = predict(NEEDY, there)
    assert (found.verdict, found.reason) == (verdict, reason)
    if reason:
        assert found.sentence.endswith(WANTED)
    one = ask(PodKind.of(NEEDY), there[0])  # type: ignore[arg-type]
    assert not (reason and (one.placement_admits or one.may_admit))


def test_pod_without_claims_may_require_one_numa_node_too() -> None:
    (node,) = nodes(names=("a",))
    plain = replace(pod(2, resourceClaimName="none"), resource_claims=False, claims=())
    kind = PodKind.of(requiring(plain))
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew([node])
    assert forecast.verdicts["a"].answer is NodeAnswer.ADMITS


def test_where_devices_cannot_be_foreseen_a_requiring_pod_waits() -> None:
    (node,) = nodes(CLASS, gpus("a", 1), names=("a",))
    found = predict(NEEDY, [node])
    assert (found.verdict, found.reason) == (UNKNOWN, "AlignmentNotKnown")
    kind = PodKind.of(NEEDY)
    assert kind is not None
    assert not ask(kind, node).placement_admits
    assert not ask(kind, nodes(names=("a",))[0].with_pod(MINE)).may_admit


def test_schedulers_reasons_of_alignment_name_no_node() -> None:
    for numa, text in ((0, "where the pod's devices and CPUs would not be"), (None, "not known whether")):
        (node,) = nodes(CLASS, claim(), gpus("a", numa), names=("a",))
        kind = PodKind.of(NEEDY)
        assert kind is not None
        said = scheduler_reason(ask(kind, node))
        assert said.startswith("node(s) where ")
        assert text in said
        assert "gpu" not in said


@pytest.mark.parametrize("choice", [one for one in ASKING if one != "shapes"])
def test_every_way_of_choosing_prefers_aligned_nodes(choice: str) -> None:
    names = ("apart", "near", "somewhere")
    there = nodes(
        CLASS,
        claim(),
        *(gpus(name, numa) for name, numa in zip(names, (0, 1, None), strict=True)),
        names=names,
    )
    kind = PodKind.of(MINE)
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew(there)
    by_name = {node.name: node for node in there}
    keys = Ranking(choice).keys(MINE, forecast.verdicts, by_name.get)  # type: ignore[arg-type]
    assert sorted(keys, key=keys.__getitem__) == ["near", "somewhere", "apart"]
    assert [one.node for one in forecast.prediction().candidates] == ["near", "somewhere", "apart"]


def test_another_value_of_the_annotation_is_named_and_means_nothing() -> None:
    there = nodes(CLASS, claim(), gpus("a", 0), names=("a",))
    found = predict(requiring(MINE, "requird"), there)
    assert found.verdict == ADMISSIBLE
    assert found.doubts == (
        "annotation numazones.io/alignment: 'requird' has no effect; the only value is required",
    )


def test_a_pod_that_requires_alignment_is_always_asked_about() -> None:
    plain = replace(MINE, admission=None)
    assert relevant(requiring(plain))


def test_room_held_for_pods_on_their_way_includes_their_devices() -> None:
    two = resource_slice(device("gpu-0", 1), device("gpu-1", 1), name="s", node="a", pool="a")
    (node,) = nodes(CLASS, claim(), claim(name="second"), claim(name="third"), two, names=("a",))
    pods = [pod(1, resourceClaimName=name) for name in ("claim", "second")]
    third = PodKind.of(pod(1, resourceClaimName="third"))
    assert third is not None
    assert Arrivals.of(node, pods[:1]).admits(third)
    assert not Arrivals.of(node, pods).admits(third)


def test_beside_a_pod_that_requires_alignment_nobody_is_promised_room() -> None:
    two = resource_slice(device("gpu-0", 0), device("gpu-1", 0), name="s", node="a", pool="a")
    (node,) = nodes(CLASS, claim(), claim(name="second"), two, names=("a",))
    first, second = (pod(1, resourceClaimName=name) for name in ("claim", "second"))
    kinds = [PodKind.of(second), PodKind.of(requiring(second))]
    assert [Arrivals.of(node, [first]).admits(kind) for kind in kinds if kind] == [True, False]
    assert not any(Arrivals.of(node, [requiring(first)]).admits(kind) for kind in kinds if kind)
    assert all(Arrivals.of(node, []).admits(kind) for kind in kinds if kind)


def test_kinds_follow_their_claims() -> None:
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {"spec": claim()["spec"]},
    }
    free = nodes(CLASS, claim(), template, gpus("a", 1), names=("a",))[0].cluster_devices
    taken = nodes(CLASS, claim(result("gpu-0", pool="a")), template, gpus("a", 1), names=("a",))[0]
    before = PodKind.of(pod(resourceClaimTemplateName="one"))
    (waiting,) = pod(resourceClaimTemplateName="one").claims
    made = replace(pod(), claims=(waiting._replace(claim="team/claim"),))
    after = PodKind.of(made)
    assert before is not None
    assert after is not None
    assert before != after
    assert before.settled(free) == after.settled(free)
    assert after.settled(free) != after.settled(taken.cluster_devices)


def test_verdicts_that_are_kept_hold_no_copy_of_the_cluster() -> None:
    (node,) = nodes(CLASS, claim(), gpus("a", 1), names=("a",))
    kind = PodKind.of(MINE)
    assert kind is not None
    devices = ask(kind, node).devices
    assert devices is not None
    assert devices.after is None
    placed = place_beside(MINE, node)
    assert placed is not None
    assert placed.node.cluster_devices is not None
    assert placed.node.cluster_devices.claims is not None
    assert placed.node.cluster_devices.claims["team/claim"].allocated
