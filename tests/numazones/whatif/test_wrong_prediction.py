"""Kept wrong predictions: what is written is read again and decided alike; other data is named."""

import gzip
import json
from typing import Any

import pytest

from numazones.apimachinery.taints import Taint
from numazones.kubelet.node_admission import admit_to_node
from numazones.whatif.wrong_prediction import InvalidRecord, WrongPrediction, read, replay, write
from tests.numazones.whatif.misses import missed, pod


@pytest.mark.parametrize(
    ("cpu", "around", "reason"),
    [
        (30, {}, "Admitted"),
        (40, {}, "TopologyAffinityError"),
        (30, {"allocatable": {"cpu": 40_000, "memory": 1 << 40}}, "OutOfcpu"),
        (30, {"ended": frozenset({"uid-first"}), "pods": {}}, "Admitted"),
        (10, {"labels": {"zone": "b"}}, "NodeAffinity"),
        (10, {"taints": (Taint("other", "", "NoExecute"),)}, "TaintToleration"),
        (10, {"pod_slots": 1}, "OutOfpods"),
    ],
)
def test_a_miss_that_was_kept_is_decided_as_it_was(cpu: int, around: dict[str, Any], reason: str) -> None:
    kept = missed(cpu=cpu, **around)
    before = replay(kept)
    again = read(write(kept))
    assert replay(again) == before
    said = [admit_to_node(one.node, one.pod).sentence for one in (again, kept)]
    assert said[0] == said[1]
    assert (again.pod, again.node.labels, again.actual, again.time) == (
        kept.pod,
        kept.node.labels,
        kept.actual,
        kept.time,
    )
    assert before.reason == reason


def test_labels_and_annotations_irrelevant_to_admission_are_dropped() -> None:
    kept = missed(cpu=4)
    secret = pod("late", cpu=4, labels={"a": "secret"}, annotations={"b": "secret"}).info
    data = write(WrongPrediction(secret, kept.node, kept.predicted, kept.actual, kept.time, kept.version))
    assert b"secret" not in gzip.decompress(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a saved wrong prediction"),
        (b"\x1f\x8bnonsense", "not a saved wrong prediction"),
        (b"{}", "the wrong prediction has format None, not numazones-miss/1"),
        (b'{"format": "numazones-miss/9"}', "replay it with the release that wrote it"),
        (b'{"format": "numazones-miss/1"}', "the saved prediction is damaged: 'zones'"),
    ],
)
def test_what_is_no_miss_is_named(data: bytes, said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        read(data)


def test_a_miss_that_was_edited_is_named() -> None:
    document = json.loads(gzip.decompress(write(missed(cpu=4))))
    document["pod"]["pod"]["containers"] = "none"
    with pytest.raises(InvalidRecord, match=r"damaged: pod\.containers: Input should be a valid tuple"):
        read(json.dumps(document).encode())
