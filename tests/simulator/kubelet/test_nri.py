"""The topology-aware policy on a simulated node: which containers are tried again, and when."""

from typing import Any

import pytest

from numazones_simulator import node_kinds
from numazones_simulator.kubelet.nri import TopologyAwarePlugin


def body(name: str, *cpus: int) -> dict[str, Any]:
    """A Guaranteed pod of containers with so many CPUs."""
    containers = []
    for number, count in enumerate(cpus):
        amounts = {"cpu": str(count), "memory": "1Gi"}
        containers.append({"name": f"c{number}", "resources": {"requests": amounts, "limits": amounts}})
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers},
    }


@pytest.fixture
def plugin() -> TopologyAwarePlugin:
    """A full node: pods of two CPUs, and one of the last CPU, ``last``."""
    plugin = TopologyAwarePlugin(node_kinds.topology_aware("node", "10.0.0.1"))
    number = 0
    while not plugin.create(body(f"two-{number}", 2)):
        number += 1
    plugin.remove(f"two-{number}")
    assert not plugin.create(body("last", 1))
    return plugin


def neighbour_of_last(plugin: TopologyAwarePlugin) -> str:
    """A pod of two CPUs in the same pool."""
    grants = plugin.node.grants
    pool = grants["last/c0"].pool
    found = next(name for name, grant in grants.items() if grant.pool == pool and name.startswith("two-"))
    return found.partition("/")[0]


def test_a_pod_is_created_whole_once_there_is_room(plugin: TopologyAwarePlugin) -> None:
    waiting = body("waiting", 2, 1)
    assert set(plugin.create(waiting)) == {"c0", "c1"}
    plugin.remove(neighbour_of_last(plugin))
    plugin.remove("last")
    assert plugin.create_again(waiting)
    assert {"waiting/c0", "waiting/c1"} <= set(plugin.node.grants)


def test_another_attempt_in_vain_moves_no_container_that_runs(plugin: TopologyAwarePlugin) -> None:
    plugin.remove(neighbour_of_last(plugin))
    assert not plugin.create(body("one", 1))
    waiting = body("waiting", 2, 1)
    assert set(plugin.create(waiting)) == {"c0"}
    plugin.remove("one")  # room for the first container now, was the second not there
    before = plugin.node
    assert not plugin.create_again(waiting)
    assert plugin.node is before
    assert "waiting/c1" in plugin.node.grants
