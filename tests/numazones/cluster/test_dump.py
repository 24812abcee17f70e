"""A dump keeps what answers need of its objects."""

from typing import Any

import pytest

from numazones.cluster.dump import Dump

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
ZONE = {"kind": "NUMAZone", "spec": {"nodeName": "worker-1", "numaID": 0}}


def test_images_of_a_node_are_not_kept() -> None:
    body = {"kind": "Node", "metadata": {"name": "worker-1"}, "status": {"images": [1], "phase": "Running"}}
    assert Dump.of([body]).nodes == [{**body, "status": {"phase": "Running"}}]
    assert body["status"] == {"images": [1], "phase": "Running"}


@pytest.mark.parametrize(
    "latest",
    [
        {"kind": "Node", "metadata": {"creationTimestamp": LATE}},
        {**ZONE, "metadata": {"creationTimestamp": LATE}},
        {"kind": "Lease", "spec": {"renewTime": LATE}},
        {"kind": "Pod", "metadata": {"name": "web", "creationTimestamp": LATE}},
    ],
)
def test_moment_is_the_latest_time_in_a_dump(latest: dict[str, Any]) -> None:
    others = [
        {**ZONE, "metadata": {"creationTimestamp": EARLY}},
        {"kind": "Node", "metadata": {"creationTimestamp": EARLY}},
    ]
    assert f"{Dump.of([latest, *others]).moment:%Y-%m-%dT%H:%M:%SZ}" == LATE
