"""The shapes that room is kept for, unless somebody says which."""

from typing import Any

import pytest

from numazones import build
from numazones.api.rebalance import Goals
from numazones.cluster.cluster import ClusterPod
from numazones.prediction.wanted_shapes import MOST, wanted_shapes


def goals(*amounts: dict[str, str]) -> Goals:
    shapes = [{"name": f"s{at}", "resources": one} for at, one in enumerate(amounts)]
    return Goals.model_validate({"shapes": shapes})


def pod(cpu: Any) -> ClusterPod:
    return ClusterPod.from_api(build.pod_body(f"p{cpu}", cpu=cpu, memory="1Gi"))


BURSTABLE = ClusterPod.from_api(
    {
        "metadata": {"name": "b", "namespace": "d", "uid": "b"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]},
    }
)
BROKEN = ClusterPod.from_api(
    {
        "metadata": {"name": "b", "namespace": "d", "uid": "b"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]},
    }
)


@pytest.mark.parametrize(
    ("policies", "waiting", "expected"),
    [
        ([], [], []),
        ([goals({"cpu": "16"}), goals({"cpu": "4"}, {"cpu": "16"})], [], ["cpu=16", "cpu=4"]),
        ([], [pod(4), pod(12), pod(4), pod(4)], ["cpu=12,memory=1Gi", "cpu=4,memory=1Gi"]),
        ([], [pod(2)] * 4 + [pod(6)], ["cpu=2,memory=1Gi", "cpu=6,memory=1Gi"]),
        ([goals({"cpu": "16"})], [pod(4)], ["cpu=16", "cpu=4,memory=1Gi"]),
        # Neither has a shape; nor has a policy that makes no sense.
        ([goals({"memory": "1Gi"}, {"cpu": "-3"})], [BURSTABLE, BROKEN, pod(2)], ["cpu=2,memory=1Gi"]),
    ],
    ids=["none", "policies", "equal sums", "most CPUs first", "policies first", "no shape"],
)
def test_shapes_come_from_policies_then_from_most_waiting_pods(
    policies: list[Goals], waiting: list[ClusterPod], expected: list[str]
) -> None:
    assert [str(shape) for shape in wanted_shapes(policies, waiting)] == expected


def test_number_of_wanted_shapes_is_limited() -> None:
    found = wanted_shapes([goals({"cpu": "16"})], [pod(cpu) for cpu in range(1, 12)])
    assert len(found) == MOST
    assert [shape.cpus for shape in found] == [16, 11, 10, 9]
