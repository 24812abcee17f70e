"""Zones of recorded nodes agree, per zone and resource, with what the raw files say.

Expectations are computed here from the files alone, with none of the project's code.
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.recorded_nodes import Recorded, printed_zones

UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "": 1}
AMOUNTS = ("capacity", "reserved", "allocatable", "assigned")


def number(quantity: str) -> int:
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", quantity)
    assert match is not None, quantity
    return int(match[1]) * UNITS[match[2]]


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


class RawFiles:
    """Contents of the recording's files, read as plain JSON and text."""

    def __init__(self, recorded: Recorded) -> None:
        self.nodes = sorted(
            int(path.name.removeprefix("node"))
            for path in (recorded.machine / "sys/devices/system/node").glob("node[0-9]*")
        )
        self._sys = recorded.machine / "sys/devices/system/node"
        self.configuration = yaml.safe_load((recorded.directory / "kubelet-config.yaml").read_text())
        self.cpu = json.loads((recorded.state / "cpu_manager_state").read_text())
        self.memory = json.loads((recorded.state / "memory_manager_state").read_text())
        self.devices = json.loads((recorded.state / "kubelet_internal_checkpoint").read_text())["Data"]
        pods = json.loads(recorded.pods.read_text())["items"]
        self.active = {
            pod["metadata"]["uid"]
            for pod in pods
            if pod["spec"].get("nodeName") == recorded.name
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        }
        self.offered = _allocatable(recorded)

    def zone_cpus(self, numa: int) -> set[int]:
        return cpus((self._sys / f"node{numa}/cpulist").read_text())

    def reserved_cpus(self) -> set[int]:
        explicit = self.configuration.get("reservedSystemCPUs")
        if explicit:
            return cpus(explicit)
        return set.union(*map(self.zone_cpus, self.nodes)) - set(self.offered.cpu_ids)

    def held_cpus(self) -> set[int]:
        entries = self.cpu.get("entries", {}).items()
        return {
            cpu
            for uid, containers in entries
            if uid in self.active
            for text in containers.values()
            for cpu in cpus(text)
        }

    def total_memory(self, numa: int) -> int:
        match = re.search(r"MemTotal:\s+(\d+) kB", (self._sys / f"node{numa}/meminfo").read_text())
        assert match is not None
        return int(match[1]) * 1024

    def hugepages(self, numa: int) -> dict[str, int]:
        sizes = {2048: "hugepages-2Mi", 1048576: "hugepages-1Gi"}
        found = {}
        for path in (self._sys / f"node{numa}/hugepages").iterdir():
            size = int(path.name.removeprefix("hugepages-").removesuffix("kB"))
            found[sizes[size]] = size * 1024 * int((path / "nr_hugepages").read_text())
        return found

    def assigned_memory(self, numa: int, kind: str) -> int:
        """Bytes by the manager's table while nobody in it has ended, else by the active pods' blocks."""
        if self.memory.get("entries", {}).keys() <= self.active:
            return int(self.memory["machineState"][str(numa)]["memoryMap"][kind]["reserved"])
        blocks = [
            block
            for uid, containers in self.memory["entries"].items()
            if uid in self.active
            for held in containers.values()
            for block in held
        ]
        assert all(len(block["numaAffinity"]) == 1 for block in blocks), (
            "no raw file knows how they are split"
        )
        return sum(
            block["size"] for block in blocks if block["numaAffinity"] == [numa] and block["type"] == kind
        )

    def device_rows(self) -> dict[tuple[int, str], dict[str, int]]:
        rows: dict[tuple[int, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(AMOUNTS, 0))
        registered = {
            (name, device) for name, ids in self.devices["RegisteredDevices"].items() for device in ids
        }
        places: dict[tuple[str, str], set[int]] = defaultdict(set)
        for entry in self.offered.devices:
            for device in entry.device_ids:
                places[entry.resource_name, device] |= {node.ID for node in entry.topology.nodes}
        held = set()
        for entry in self.devices["PodDeviceEntries"] or []:
            for numa, ids in entry["DeviceIDs"].items():
                for device in ids:
                    key = (entry["ResourceName"], device)
                    if entry["PodUID"] in self.active:
                        held.add(key)
                    if int(numa) >= 0:
                        places[key].add(int(numa))
        for key in registered | held:
            for numa in places[key]:
                row = rows[numa, key[0]]
                row["capacity"] += 1
                row["allocatable"] += key in registered
                row["assigned"] += key in held
        return dict(rows)


def _allocatable(recorded: Recorded) -> Any:
    from numazones_node import podresources_pb2  # noqa: PLC0415 - the generated wire format only

    message = podresources_pb2.AllocatableResourcesResponse()
    message.ParseFromString((recorded.state / "podresources_allocatable.pb").read_bytes())
    return message


def expected_rows(raw: RawFiles) -> dict[tuple[int, str], dict[str, int]]:
    rows = raw.device_rows()
    for numa in raw.nodes:
        own = raw.zone_cpus(numa)
        reserved = len(own & raw.reserved_cpus())
        rows[numa, "cpu"] = {
            "capacity": len(own),
            "reserved": reserved,
            "allocatable": len(own) - reserved,
            "assigned": len(own & raw.held_cpus()),
        }
        tables = raw.memory["machineState"][str(numa)]["memoryMap"]
        sizes = {"memory": raw.total_memory(numa), **raw.hugepages(numa)}
        assert sizes.keys() == tables.keys()
        for kind, capacity in sizes.items():
            table = tables[kind]
            assert table["total"] == capacity
            rows[numa, kind] = {
                "capacity": capacity,
                "reserved": table["systemReserved"],
                "allocatable": table["allocatable"],
                "assigned": raw.assigned_memory(numa, kind),
            }
    return rows


def actual_rows(zones: list[dict[str, Any]]) -> dict[tuple[int, str], dict[str, int]]:
    return {
        (zone["spec"]["numaID"], row["name"]): {
            amount: number(row[amount]) for amount in AMOUNTS if amount in row
        }
        for zone in zones
        for row in zone["status"]["resources"]
    }


def test_amounts_equal_what_the_raw_files_say(recorded: Recorded) -> None:
    zones = printed_zones(*recorded.flags())
    assert actual_rows(zones) == expected_rows(RawFiles(recorded))


def test_a_real_kubelets_sources_agree_and_are_complete(recorded: Recorded) -> None:
    for zone in printed_zones(*recorded.flags()):
        assert {item["type"]: item["status"] for item in zone["status"]["conditions"]} == {
            "Ready": "True",
            "Consistent": "True",
        }


def test_cpu_sets_equal_what_the_raw_files_say(recorded: Recorded) -> None:
    raw = RawFiles(recorded)
    for zone in printed_zones(*recorded.flags()):
        own, sets = raw.zone_cpus(zone["spec"]["numaID"]), zone["status"]["cpus"]
        assert cpus(zone["status"]["topology"]["cpus"]) == own
        assert cpus(sets.get("reserved", "")) == own & raw.reserved_cpus()
        assert cpus(sets.get("exclusive", "")) == own & raw.held_cpus()
        assert cpus(sets.get("shared", "")) == own - raw.reserved_cpus() - raw.held_cpus()


def test_assignments_are_those_of_active_pods(recorded: Recorded) -> None:
    raw = RawFiles(recorded)
    held: dict[tuple[str, str], set[int]] = defaultdict(set)
    for zone in printed_zones(*recorded.flags()):
        for item in zone["status"].get("assignments", []):
            held[item["uid"], item["container"]] |= cpus(item.get("cpus", ""))
    expected = {
        (uid, name): cpus(text)
        for uid, containers in raw.cpu.get("entries", {}).items()
        if uid in raw.active
        for name, text in containers.items()
    }
    assert {key: value for key, value in held.items() if value} == expected
    assert {uid for uid, _ in held} <= raw.active


def test_every_source_of_the_configuration_gives_the_same_zones(recorded: Recorded) -> None:
    configz = recorded.directory / "configz.json"
    assert printed_zones(*recorded.flags(kubelet_config=f"file:{configz}")) == printed_zones(
        *recorded.flags()
    )


def test_podresources_alone_show_which_recorded_pods_have_ended(recorded: Recorded) -> None:
    assert actual_rows(printed_zones(*recorded.flags(pods="none"))) == expected_rows(RawFiles(recorded))


def test_without_podresources_only_free_devices_stay_unknown(recorded: Recorded) -> None:
    """State files and pods tell the rest; the static policy's choice of reserved CPUs is computed."""
    zones = printed_zones(*recorded.flags(podresources="none"))
    rows, expected = actual_rows(zones), expected_rows(RawFiles(recorded))
    for (numa, name), row in expected.items():
        if name.startswith("vendor.example/"):
            held = {"assigned": row["assigned"]} if row["assigned"] else None
            assert rows.get((numa, name)) == held
        else:
            assert rows[numa, name] == row
    ready = zones[0]["status"]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("Unknown", "NotAsked")


@pytest.fixture
def without(tmp_path: Path) -> Any:
    """Copy a recorded kubelet directory without some of its files."""

    def copy(recorded: Recorded, *names: str) -> str:
        for path in recorded.state.iterdir():
            if path.is_file() and path.name not in names:
                (tmp_path / path.name).write_bytes(path.read_bytes())
        return str(tmp_path)

    return copy


def test_podresources_replace_missing_state_files(recorded: Recorded, without: Any) -> None:
    """But for init containers' CPUs and the split of blocks over NUMA nodes, which only state files know."""
    directory = without(recorded, "cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint")
    zones = printed_zones(*recorded.flags(kubelet_dir=directory))
    rows, expected = actual_rows(zones), expected_rows(RawFiles(recorded))
    assert rows.keys() == expected.keys()
    for kind in {kind for _, kind in expected}:
        for amount in AMOUNTS:
            here = sum(row[amount] for (_, name), row in rows.items() if name == kind)
            there = sum(row[amount] for (_, name), row in expected.items() if name == kind)
            if (kind, amount) == ("cpu", "assigned"):
                assert here <= there
            else:
                assert here == there, (kind, amount)
    ready = zones[0]["status"]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("Unknown", "NotFound")
