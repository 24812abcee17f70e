"""No known reader of NodeResourceTopology fails on the objects that are written here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.api.noderesourcetopology import NUMA_ID, from_zones
from numazones.api.numazone import NUMAZone
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery import quantity
from numazones.kubelet.node import Node
from tests.numazones.api.nodes import nodes
from tests.numazones.api.topology_readers import (
    ReaderFailed,
    cells,
    koordinator_numa_nodes,
    lines_logged_at_every_look,
    pods_fingerprint,
    score_each_zone,
    score_least_numa_nodes,
    topology_manager,
)

NANOS = 10**9
REQUEST = {"cpu": 2 * NANOS, "memory": (1 << 30) * NANOS}


def read(body: dict[str, Any], *requests: dict[str, int]) -> None:
    """Have every reader look at an object, and weigh it for a pod with these containers."""
    for request in requests:
        assert 0 <= score_each_zone(body, request) <= 100
    assert 0 <= score_least_numa_nodes(body, requests) <= 100
    assert lines_logged_at_every_look(body) == 0
    told = koordinator_numa_nodes(body)
    assert sorted(told) == list(range(len(body["zones"])))
    assert [cell.number for cell in cells(body)] == sorted(told)


@given(nodes(), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_every_reader_can_weigh_every_node(node: Node, cpus: list[int]) -> None:
    body = from_zones(zones_from_node(node, node_name="worker", pods={})).to_api()
    read(body, *({**REQUEST, "cpu": cpu * NANOS} for cpu in cpus))


@given(nodes())
def test_schedulers_read_the_kubelet_settings_of_every_node(node: Node) -> None:
    zones = zones_from_node(node, node_name="worker", pods={})
    body = from_zones(zones).to_api()
    policy, scope, most = topology_manager(body)
    assert (policy, scope) == (node.config.topology_manager_policy, node.config.topology_manager_scope)
    assert most >= max(2, len(body["zones"]))
    assert body["metadata"]["name"] == "worker"
    assert pods_fingerprint(body) == (zones[0].to_api()["status"].get("podsFingerprint", ""), False)


@given(nodes())
def test_schedulers_find_each_zones_free_amounts_and_distances(node: Node) -> None:
    zones = zones_from_node(node, node_name="worker", pods={})
    shown = {
        int(zone.spec.numa_id): {
            row.name: quantity.parse(row.available).nanos
            for row in zone.status.resources
            if row.capacity is not None and row.allocatable is not None and row.available is not None
        }
        for zone in zones
        if zone.status is not None
    }
    body = from_zones(zones).to_api()
    ids = [
        int(next((one["value"] for one in entry.get("attributes", ()) if one["name"] == NUMA_ID), number))
        for number, entry in enumerate(body["zones"])
    ]
    for cell, numa in zip(cells(body), ids, strict=True):
        assert cell.resources == shown[numa]
        assert not cell.costs or cell.costs[cell.number] == min(cell.costs.values())


def zone(numa: int, *others: int, cpu: str = "8", memory: str = "16Gi", policy: str = "none") -> NUMAZone:
    return NUMAZone.from_api(
        {
            "spec": {"nodeName": "worker", "numaID": numa},
            "status": {
                "kubelet": {"topologyManagerPolicy": policy, "topologyManagerScope": "container"},
                "topology": {
                    "distances": [
                        {"numaID": other, "distance": 10 if other == numa else 40} for other in others
                    ]
                },
                "resources": [
                    {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
                    for name, amount in (("cpu", cpu), ("memory", memory))
                ],
            },
        }
    )


@pytest.mark.parametrize(
    "ids",
    [(0, 8), (1, 2, 5), (0, 252, 253), tuple(range(9)), tuple(range(0, 32, 2)), (3, 64), tuple(range(70))],
    ids=["POWER", "gaps", "memory of accelerators", "more than eight", "sixteen", "64", "more than 64"],
)
def test_zones_are_numbered_without_gaps_and_keep_their_ids(ids: tuple[int, ...]) -> None:
    body = from_zones(zone(numa, *ids) for numa in ids).to_api()
    read(body, REQUEST, {"cpu": 12 * NANOS})
    shown = ids[:64]
    assert [entry["name"] for entry in body["zones"]] == [f"node-{number}" for number in range(len(shown))]
    told = [{a["name"]: a["value"] for a in entry.get("attributes", ())} for entry in body["zones"]]
    assert [int(a.get("numazones.io/numa-id", number)) for number, a in enumerate(told)] == list(shown)
    costs = [[cost["name"] for cost in entry["costs"]] for entry in body["zones"]]
    assert costs == [[f"node-{number}" for number in range(len(shown))]] * len(shown)


def test_pod_over_more_than_eight_zones_gets_a_score() -> None:
    ids = tuple(range(9))
    read(from_zones(zone(numa, *ids) for numa in ids).to_api(), {"cpu": 72 * NANOS})


def test_zones_that_have_nothing_take_no_part() -> None:
    """So has a Grace Blackwell machine: 2 NUMA nodes with CPUs, 32 for GPUs."""
    ids = tuple(range(34))
    empty = [zone(numa, *ids, cpu="0", memory="0") for numa in ids[2:]]
    body = from_zones([zone(0, *ids), zone(1, *ids), *empty]).to_api()
    assert [entry["name"] for entry in body["zones"]] == ["node-0", "node-1"]
    assert [len(entry["costs"]) for entry in body["zones"]] == [2, 2]
    read(body, {"cpu": 17 * NANOS})


def as_others_write(*ids: int, **more: Any) -> dict[str, Any]:
    rows = [{"name": name, "allocatable": "8Gi", "available": "8Gi"} for name in REQUEST]
    return {"zones": [{"name": f"node-{numa}", "type": "Node", "resources": rows} for numa in ids], **more}


@pytest.mark.parametrize(
    ("body", "cpus", "message"),
    [
        (as_others_write(0, 8), 2, r"index out of range \[8\] with length 2"),
        (as_others_write(0, 64), 2, r"index out of range \[64\] with length 64"),
        (as_others_write(*range(9)), 9 << 33, r"invalid score -2"),
        (as_others_write(*range(34)), 34 << 33, "combinations of 34 zones"),
    ],
    ids=["gap", "64", "more zones than the limit", "too many combinations"],
)
def test_the_readers_fail_where_the_real_ones_do(body: dict[str, Any], cpus: int, message: str) -> None:
    with pytest.raises((ReaderFailed, AssertionError), match=message):
        read(body, {"cpu": cpus * NANOS})


def test_deprecated_policies_are_counted_as_lines_of_log() -> None:
    assert lines_logged_at_every_look({"topologyPolicies": ["None"]}) == 2
