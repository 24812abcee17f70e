"""Locations of a container's devices, and how well pools suit them."""

import pytest

from numazones_topology_aware.hardware import Device, Hardware
from numazones_topology_aware.node import Node
from numazones_topology_aware.rejection import PluginCrash
from numazones_topology_aware.sandbox import ContainerDevice, ContainerSpec, PodDevice, Sandbox
from numazones_topology_aware.topology import Topology
from numazones_topology_aware.topology_hints import Hint, combine, of_container, score
from tests.models.topology_aware.machines import GIB, configuration, hardware

DEVICES = (
    Device("c", 1, 0, "pci0/dev0", numa=1, cpus="4-7"),
    Device("c", 1, 1, "pci0/dev1", numa=1),
    Device("c", 1, 2, "pci0/dev0/child", numa=0),
    Device("c", 1, 3, "pci0/plain"),
    Device("c", 1, 4, "pci0/nowhere", numa=-1),
    Device("b", 8, 0, "pci1/disk", numa=0, cpus="0-3"),
    Device("c", 1, 5, "pci0/dev0/grandchild/leaf"),
)


def machine() -> Hardware:
    base = hardware()
    return Hardware(base.machine, base.details, devices=DEVICES)


def hints(
    *devices: tuple[str, int, int, str], listed: tuple[PodDevice, ...] = (), **annotations: str
) -> dict[str, Hint]:
    full = {f"{key.replace('_', '.')}.resource-policy.nri.io": value for key, value in annotations.items()}
    sandbox = Sandbox("s", "p", "n", annotations=full, devices={"c": listed})
    spec = ContainerSpec("id", "c", devices=tuple(ContainerDevice(*one) for one in devices))
    return of_container(sandbox, spec, Topology.discover(machine()))


@pytest.mark.parametrize(
    ("device", "found"),
    [
        (("c", 1, 0, "rw"), {"/sys/devices/pci0/dev0": Hint("4-7", "1")}),
        (("b", 8, 0, "rw"), {"/sys/devices/pci1/disk": Hint("0-3", "0")}),
        # A NUMA number without CPUs, and nothing above that knows more, passes for a socket's.
        (("c", 1, 1, "rw"), {"/sys/devices/pci0/dev1": Hint(sockets="1")}),
        # The device above knows its CPUs and its NUMA node.
        (("c", 1, 2, "rw"), {"/sys/devices/pci0/dev0/child": Hint("4-7", "1")}),
        # The nearest directory upward that knows anything counts.
        (("c", 1, 5, "rw"), {"/sys/devices/pci0/dev0": Hint("4-7", "1")}),
        (("c", 1, 3, "rw"), {}),
        (("c", 1, 4, "rw"), {}),
        (("c", 1, 0, "r"), {}),
        (("c", 9, 9, "rw"), {}),
        (("b", 1, 0, "rw"), {}),
    ],
)
def test_writable_devices_say_where_they_are(
    device: tuple[str, int, int, str], found: dict[str, Hint]
) -> None:
    assert hints(device) == found


def test_last_device_with_topology_counts_for_its_resource() -> None:
    listed = (PodDevice("gpu", (0,)), PodDevice("gpu", (1, 2)), PodDevice("gpu"), PodDevice("nic", (3,)))
    assert hints(listed=listed) == {
        "podresourceapi:gpu": Hint("4-11", "1,2"),
        "podresourceapi:nic": Hint("12-15", "3"),
    }


BOTH = {"/sys/devices/pci0/dev0", "podresourceapi:gpu"}
DEVICE, RESOURCE = ({one} for one in sorted(BOTH))


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({}, BOTH),
        ({"topologyhints": "true"}, BOTH),
        ({"topologyhints": "false"}, set()),
        ({"topologyhints": "devices"}, DEVICE),
        ({"topologyhints": "mounts,pod-resources"}, RESOURCE),
        ({"topologyhints": "all"}, BOTH),
        ({"topologyhints": "devices,none"}, set()),
        ({"topologyhints": "devices,junk"}, DEVICE),
        ({"topologyhints": "junk"}, set()),
        ({"deny_topologyhints": "type: prefix\npaths: ['/sys/devices']"}, RESOURCE),
        ({"deny_topologyhints": "type: glob\npaths: ['podresourceapi:*']"}, DEVICE),
        (
            {"deny_topologyhints": "paths: ['/']\n", "allow_topologyhints": "paths: ['/sys/devices/pci0']"},
            BOTH,
        ),
        ({"deny_topologyhints": "type: glob\npaths: ['[', '*']"}, BOTH),  # a broken pattern ends the search
        ({"deny_topologyhints": "type: odd\npaths: ['/']"}, BOTH),
        ({"deny_topologyhints": "["}, BOTH),
        (
            {
                "deny_topologyhints": "type: prefix\npaths: ['/']",
                "allow_topologyhints": "type: glob\npaths: ['[']",
            },
            RESOURCE,
        ),
    ],
)
def test_pods_choose_where_hints_come_from(annotations: dict[str, str], found: set[str]) -> None:
    assert set(hints(("c", 1, 0, "rw"), listed=(PodDevice("gpu", (0,)),), **annotations)) == found


def scores(hint: Hint, target: Hardware) -> dict[str, float]:
    node = Node.fresh(target, configuration())
    tree = node.policy.tree
    return {pool.name: round(score(hint, pool, tree, node.policy.topology), 3) for pool in node.pools}


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [
        (Hint(cpus="4-7"), {"NUMA node #0": 0, "NUMA node #1": 1, "socket #0": 1, "socket #1": 0, "root": 1}),
        (Hint(cpus="0-7"), {"NUMA node #0": 0.5, "socket #0": 1, "root": 1}),
        (Hint(cpus="0-1,8-9"), {"NUMA node #0": 0.5, "NUMA node #2": 0.5, "socket #0": 0.5, "root": 1}),
        (Hint(numas="1"), {"NUMA node #0": 0, "NUMA node #1": 1, "socket #0": 0.9, "root": 0.81}),
        (Hint(numas="1-2"), {"NUMA node #1": 0}),  # the code reads no ranges here
        (Hint(sockets="1"), {"NUMA node #0": 0, "NUMA node #2": 0.5, "socket #1": 1, "root": 0.9}),
        (Hint(cpus="junk"), {"root": 0}),
        (Hint(), {"root": 0}),
    ],
)
def test_pools_are_scored(hint: Hint, wanted: dict[str, float]) -> None:
    found = scores(hint, hardware())
    assert {name: found[name] for name in wanted} == wanted


def test_dies_are_scored_by_their_whole_package() -> None:
    found = scores(Hint(cpus="0-3"), hardware(sockets=1, dies=2, clusters=2, numas=1))
    assert found["die #0/0"] == found["die #0/1"] == 1
    assert scores(Hint(numas="1"), hardware(sockets=1, dies=2, clusters=2, numas=1))["die #0/1"] == 0.9
    assert scores(Hint(sockets="0"), hardware(sockets=1, dies=2, clusters=2, numas=2))["die #0/1"] == 0.5


def test_l3_pools_are_scored_by_their_numa_node() -> None:
    target = hardware(caches=2)
    assert scores(Hint(numas="1"), target)["NUMA node #1/L3 cache #2"] == 0.9
    assert scores(Hint(sockets="0"), target)["NUMA node #1/L3 cache #2"] == 0.45


def test_l3_pools_outside_numa_pools_crash_the_plugin() -> None:
    with pytest.raises(PluginCrash, match="recurse forever"):
        scores(Hint(numas="2"), hardware(sockets=1, numas=1, caches=2, far=(8 * GIB,)))


@pytest.mark.parametrize(
    ("found", "both"),
    [([], (0, 0)), ([0.5, 0.5], (0.25, 0.25)), ([0, 0.5, 0.5], (0, 0.25)), ([0, 0], (0, 0))],
)
def test_scores_are_multiplied_with_and_without_zeros(found: list[float], both: tuple[float, float]) -> None:
    assert combine(found) == both
