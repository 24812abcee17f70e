"""The exporter while something breaks around it: what zones say, and that they are right afterwards."""

import copy
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.exporter.test_daemon import SimulatedNode, healthy, node, ready, unhealthy, until
from numazones import cpuset
from numazones.api import crd
from numazones.api.numazone import NUMAZone
from numazones_client.resources import DEFINITIONS

__all__ = ["node"]  # the fixture


async def readiness(node: SimulatedNode) -> set[str]:
    """Return the texts of the condition Ready on the zones."""
    return {
        condition["status"]
        for zone in await node.zones()
        for condition in (zone.get("status") or {}).get("conditions", ())
        if condition["type"] == "Ready"
    }


async def is_ready(node: SimulatedNode, *, assigned: list[str]) -> bool:
    return await readiness(node) == {"True"} and sorted(await node.assigned()) == assigned


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def removed(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def of_another_version(path: Path) -> None:
    path.write_text(json.dumps({"version": 9, "contents": {"a": [1]}, "checksum": 1}))


@pytest.mark.parametrize("harm", [torn, removed, empty, of_another_version])
@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
async def test_damaged_state_file_makes_no_zone_wrong(
    node: SimulatedNode, name: str, harm: Callable[[Path], None]
) -> None:
    await node.admit("first", cpus=2)
    path = node.options.kubelet_dir / name
    async with node.exporting(interval=3600.0) as url:
        await ready(url)
        whole = path.read_bytes()
        harm(path)

        async def said() -> bool:
            return "True" not in await readiness(node)

        await until(said)
        # podresources knows the same, so the amounts stay right.
        assert sorted(await node.assigned()) == ["0", "2"]
        path.write_bytes(whole)
        await until(lambda: is_ready(node, assigned=["0", "2"]))
        assert node.counted("numazones_exporter_wakeups_total", reason="interval") == 0


async def test_two_exporters_of_one_node_agree_and_come_to_rest(node: SimulatedNode) -> None:
    async with AsyncExitStack() as running:
        for _ in range(2):
            node.registry = CollectorRegistry()
            await ready(await running.enter_async_context(node.exporting(interval=0.2)))
        for number in range(3):
            await node.admit(f"pod-{number}", cpus=2)

            async def shown(expected: int = 2 * number + 2) -> bool:
                return sum(map(int, await node.assigned())) == expected

            await until(shown)
        before = node.counted("numazones_exporter_scan_duration_seconds_count")
        await until(lambda: node.counted("numazones_exporter_scan_duration_seconds_count") >= before + 2)
        node.server.asked.clear()
        await until(lambda: node.counted("numazones_exporter_scan_duration_seconds_count") >= before + 8)
        assert {asked for asked in node.server.written if asked[2] != "leases"} == set()


def second_numa_node_offline(node: SimulatedNode) -> Callable[[], None]:
    """Take the second NUMA node away as the kernel does, CPUs and memory first; returns how to end that."""
    system = node.options.sysfs / "devices/system"
    folder, gone = system / "node/node1", system / "node1"
    lists = (system / "cpu/online", system / "node/node0/distance")
    before = [path.read_text() for path in lists]
    rest = cpuset.of(cpu.id for cpu in node.kubelet.spec.machine.cpus if cpu.numa == 0)
    folder.rename(gone)
    for path, text in zip(lists, (cpuset.format(rest), before[1].split()[0]), strict=True):
        path.write_text(text)

    def back() -> None:
        gone.rename(folder)
        for path, text in zip(lists, before, strict=True):
            path.write_text(text)

    return back


async def test_offline_numa_node_makes_the_node_unknown_until_it_returns(
    node: SimulatedNode,
) -> None:
    """Its kubelet goes on counting with it until it is restarted, and does not start with pods on it."""
    await node.admit("first", cpus=2)
    await node.admit("second", cpus=6)
    async with node.exporting(interval=0.2) as url:
        await ready(url)
        await until(lambda: is_ready(node, assigned=["2", "6"]))
        back = second_numa_node_offline(node)

        async def said() -> bool:
            messages = {
                condition.get("message", "")
                for zone in await node.zones()
                for condition in zone["status"]["conditions"]
                if condition["type"] == "Consistent"
            }
            foreseen = "a restart of the kubelet would fail: "
            return "True" not in await readiness(node) and all(foreseen in message for message in messages)

        await until(said)
        back()
        await until(lambda: is_ready(node, assigned=["2", "6"]))


async def test_outdated_definitions_are_named_with_the_cure_and_awaited(
    node: SimulatedNode,
) -> None:
    definition = crd.crd(NUMAZone)
    name = definition["metadata"]["name"]
    older = copy.deepcopy(definition)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["summary"]["properties"]["free"]
    await node.client.patch(DEFINITIONS, name, {"spec": {"versions": older["spec"]["versions"]}})
    async with node.exporting(interval=0.3) as url:
        cure = "its definition is older than this program: update it (kubectl apply -k crds)"
        await unhealthy(url, ".status.summary.free: field not declared in schema", cure)
        await node.client.patch(DEFINITIONS, name, {"spec": {"versions": definition["spec"]["versions"]}})
        await ready(url)
        await healthy(url)
