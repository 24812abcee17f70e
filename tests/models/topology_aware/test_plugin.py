"""The topology-aware policy on a simulated node: which containers are tried again, and when."""

from typing import Any

import pytest

from numazones_simulated_models.topology_aware import node_kinds
from numazones_simulated_models.topology_aware.plugin import TopologyAwarePlugin


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
    assert not plugin.create(waiting)
    assert {"waiting/c0", "waiting/c1"} <= set(plugin.node.grants)


@pytest.mark.parametrize(("leaves", "rejected"), [("", {"c0"}), ("one", {"c0"}), ("last", set())])
def test_another_attempt_moves_no_container_that_runs(
    plugin: TopologyAwarePlugin, leaves: str, rejected: set[str]
) -> None:
    plugin.remove(neighbour_of_last(plugin))
    assert not plugin.create(body("one", 1))
    waiting = body("waiting", 2, 1)
    assert set(plugin.create(waiting)) == {"c0"}
    plugin.remove(leaves)
    if leaves == "last":
        plugin.remove("one")
    before = plugin.node.grants
    # With "one" gone there would be room for the first container, was the second not there.
    assert set(plugin.create(waiting)) == rejected
    assert {name: plugin.node.grants[name] for name in before} == before
    assert ("waiting/c0" in plugin.node.grants) == (not rejected)
