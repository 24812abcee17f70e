"""Alignment gauges by node and by owner: few owners by name, and none left out."""

from collections.abc import Mapping

import pytest

from numazones.alignment.alignable import Alignable
from numazones.alignment.owner_alignment import AlignmentSum, OwnerName
from numazones.alignment.pod_alignment import Alignment
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.dump import Dump
from numazones.rebalance.dump import situation_of
from numazones_operator.mirror import alignment_gauges
from numazones_operator.mirror.alignment_gauges import NodeAlignment, alignment_families
from tests.kubectl.best_effort_cluster import best_effort_cluster

Samples = dict[tuple[str, ...], float]
DB, BATCH, ROUTER = (
    ("team", "ReplicaSet", "db"),
    ("team", "ReplicaSet", "batch"),
    ("team", "ReplicaSet", "router"),
)
OTHERS = ("", "", "(others)")


def shown(nodes: Mapping[str, NodeAlignment]) -> Samples:
    """(metric, values of its labels) → value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in alignment_families(nodes)
        for sample in family.samples
    }


def part(samples: Samples, name: str, *, positive: bool = False) -> dict[tuple[str, ...], float]:
    """The samples of one metric."""
    return {
        labels: value
        for (metric, *rest), value in samples.items()
        if metric == name
        for labels in [tuple(rest)]
        if value or not positive
    }


@pytest.fixture
def samples() -> Samples:
    dump = Dump.of(best_effort_cluster())
    nodes = situation_of(dump, dump.moment).cluster.nodes
    return shown({name: NodeAlignment.of(node) for name, node in nodes.items()})


def test_pods_are_counted_by_node_and_alignment(samples: Samples) -> None:
    assert part(samples, "numazones_node_pods", positive=True) == {
        ("worker-1", "aligned"): 2,
        ("worker-1", "spanning"): 1,
        ("worker-2", "aligned"): 2,
        ("worker-2", "spanning"): 1,
        ("worker-3", "aligned"): 1,
        ("worker-3", "remote"): 1,
        ("worker-4", "aligned"): 1,
    }
    assert part(samples, "numazones_node_remote_cpus") == {
        ("worker-1",): 2,
        ("worker-2",): 1,
        ("worker-3",): 0,
        ("worker-4",): 0,
    }


def test_owners_of_misaligned_pods_are_named_and_others_summed(
    samples: Samples,
) -> None:
    assert part(samples, "numazones_owner_pods", positive=True) == {
        (*DB, "aligned"): 1,
        (*DB, "spanning"): 1,
        (*BATCH, "spanning"): 1,
        (*ROUTER, "aligned"): 3,
        (*ROUTER, "remote"): 1,
        (*OTHERS, "aligned"): 2,
    }
    assert part(samples, "numazones_owner_misaligned_pods", positive=True) == {
        (*DB, "now"): 1,
        (*BATCH, "never"): 1,
        (*ROUTER, "now"): 1,
    }
    assert part(samples, "numazones_owner_cpus", positive=True) == {
        (*DB, "local"): 10,
        (*DB, "remote"): 2,
        (*BATCH, "local"): 8,
        (*BATCH, "remote"): 1,
        (*ROUTER, "local"): 8,
        (*OTHERS, "local"): 8,
    }


def test_shown_owners_have_all_series_from_the_start(samples: Samples) -> None:
    for name, values in (
        ("numazones_owner_pods", {"aligned", "remote", "spanning"}),
        ("numazones_owner_misaligned_pods", {"now", "emptier", "never", "unknown"}),
        ("numazones_owner_promised_memory_bytes", {"local", "remote"}),
    ):
        for owner in (DB, OTHERS):
            assert {labels[3] for labels in part(samples, name) if labels[:3] == owner} == values


def test_owners_beyond_the_limit_are_summed(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    def total(samples: Samples, name: str, at: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for labels, value in part(samples, name).items():
            found[labels[at]] = found.get(labels[at], 0) + value
        return found

    monkeypatch.setattr(alignment_gauges, "_MAX_OWNERS", 2)
    few = shown(
        {
            name: NodeAlignment(
                True, {OwnerName("n", "Job", f"{name}{number}"): misaligned(number) for number in range(5)}
            )
            for name in "ab"
        }
    )
    assert {labels[2] for labels in part(few, "numazones_owner_pods")} == {"a4", "b4", "(others)"}
    assert total(few, "numazones_owner_pods", 3) == total(few, "numazones_node_pods", 1)
    assert part(few, "numazones_owner_promised_memory_bytes", positive=True)[*OTHERS, "remote"] == 2 * 6
    assert total(samples, "numazones_owner_pods", 3) == total(samples, "numazones_node_pods", 1)


def misaligned(number: int) -> AlignmentSum:
    return AlignmentSum(
        {Alignment.SPANNING: number, Alignment.ALIGNED: 3},
        {Alignable.EMPTIER: number},
        cpus=number,
        memory=2 * number,
        remote_memory=number,
    )


def test_unknown_node_does_not_count_as_empty() -> None:
    assert shown({"a": NodeAlignment.of(ClusterNode("a"))}) == {}
