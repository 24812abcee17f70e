"""A recorded cluster, counted by hand: what is free, held and asked for, from the recorder's raw files.

Slow and obvious on purpose, and without the library: sets of CPU numbers, sums of bytes, every set of NUMA
nodes tried. Tests hold sentences of the explanation against it.
"""

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

Numas = frozenset[int]
_UNITS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}


def amount(text: object) -> Fraction:
    """Return the amount of a quantity."""
    written = str(text)
    digits = written.rstrip("kKmMGTi")
    return Fraction(digits) * _UNITS[written[len(digits) :]]


def ids(text: str) -> set[int]:
    """CPU or NUMA ids of a list such as ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def is_bytes(resource: str) -> bool:
    return resource == "memory" or resource.startswith("hugepages-")


def _requests(part: Mapping[str, Any]) -> dict[str, Fraction]:
    resources = part.get("resources") or {}
    return {
        name: amount(value)
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items()
    }


def _limits(part: Mapping[str, Any]) -> dict[str, Fraction]:
    return {
        name: amount(value) for name, value in ((part.get("resources") or {}).get("limits") or {}).items()
    }


def containers(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Init containers, sidecars among them, then the others: the order of admission."""
    return [*(body["spec"].get("initContainers") or ()), *body["spec"]["containers"]]


def guaranteed(body: Mapping[str, Any]) -> bool:
    return all(
        _limits(part).get(name) is not None and _limits(part)[name] == _requests(part).get(name)
        for part in containers(body)
        for name in ("cpu", "memory")
    )


def managed(body: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what one container requests from the managers."""
    asked = {name: value for name, value in _limits(part).items() if "/" in name}
    if guaranteed(body):
        asked |= {name: value for name, value in _requests(part).items() if is_bytes(name)}
        cpus = _requests(part)["cpu"]
        if cpus.denominator == 1:
            asked["cpu"] = cpus
    return {name: value for name, value in asked.items() if value}


def total(
    body: Mapping[str, Any], of: Callable[[Mapping[str, Any]], Mapping[str, Fraction]]
) -> dict[str, Fraction]:
    """Return a pod's peak request: init containers run one by one, next to the sidecars before them."""
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for part in body["spec"].get("initContainers") or ():
        stays = part.get("restartPolicy") == "Always"
        for name, value in of(part).items():
            peak[name] = max(peak.get(name, Fraction(0)), sidecars.get(name, Fraction(0)) + value)
            if stays:
                sidecars[name] = sidecars.get(name, Fraction(0)) + value
    running = dict(sidecars)
    for part in body["spec"]["containers"]:
        for name, value in of(part).items():
            running[name] = running.get(name, Fraction(0)) + value
    return {
        name: max(peak.get(name, Fraction(0)), running.get(name, Fraction(0))) for name in {*peak, *running}
    }


def scheduled(body: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what the scheduler counts for a pod."""
    found = total(body, _requests)
    overall = body["spec"].get("resources")
    return {**found, **_requests(body["spec"])} if overall else found


@dataclass
class Share:
    """Resources that one pod holds on a node."""

    body: Mapping[str, Any]
    cpus: set[int] = field(default_factory=set)
    blocks: list[tuple[str, Numas, int]] = field(default_factory=list)
    devices: set[tuple[str, str]] = field(default_factory=set)

    @property
    def name(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def held(self, resource: str) -> int:
        """Return how much it holds of a resource, in CPUs, bytes or devices."""
        if resource == "cpu":
            return len(self.cpus)
        sizes = [size for kind, _, size in self.blocks if kind == resource]
        return sum(sizes) or sum(1 for kind, _ in self.devices if kind == resource)


class RawNode:
    """A node's machine, as its files and its kubelet tell of it."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.config = yaml.safe_load((directory / "kubelet-config.yaml").read_text())
        self.body = json.loads((directory / "node.json").read_text())
        allocatable = json.loads((directory / "podresources_allocatable.json").read_text())
        self.allocatable_cpus = {int(cpu) for cpu in allocatable["cpuIds"]}
        self.memory: dict[tuple[str, int], int] = {}
        for block in allocatable["memory"]:
            (numa,) = (int(node.get("ID", 0)) for node in block["topology"]["nodes"])
            self.memory[block["memoryType"], numa] = int(block["size"])
        self.devices = {
            plugin["resource"]: {item["id"]: set(item["numa"]) for item in plugin["devices"]}
            for plugin in json.loads((directory / "device_plugins.json").read_text()).values()
        }
        self.cpus_of: dict[int, set[int]] = {}
        with tarfile.open(directory / "sys.tar.gz") as tree:
            for member in tree:
                parts = member.name.split("/")
                if parts[:4] != ["sys", "devices", "system", "node"] and parts[4:] != [
                    "cpu0",
                    "topology",
                    "thread_siblings_list",
                ]:
                    continue
                file = tree.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                if parts[-1] == "cpulist":
                    self.cpus_of[int(parts[4].removeprefix("node"))] = ids(file.read().decode())
                elif parts[-1] == "thread_siblings_list":
                    self.threads = len(ids(file.read().decode()))

    @cached_property
    def numa_sets(self) -> list[Numas]:
        """Every set of NUMA nodes, small ones first."""
        numas = sorted(self.cpus_of)
        return [
            frozenset(members) for size in range(1, len(numas) + 1) for members in combinations(numas, size)
        ]

    @property
    def policy(self) -> str:
        return str(self.config["topologyManagerPolicy"])

    @property
    def scope(self) -> str:
        return str(self.config["topologyManagerScope"])

    @cached_property
    def _cpus(self) -> dict[Numas, set[int]]:
        return {numas: set().union(*(self.cpus_of[numa] for numa in numas)) for numas in self.numa_sets}

    def cpus(self, numas: Numas) -> set[int]:
        """The CPUs of some NUMA nodes."""
        return self._cpus.get(numas, set())

    def without_topology(self, resource: str) -> bool:
        """Return whether it is a resource whose devices have no NUMA nodes."""
        return resource in self.devices and not any(self.devices[resource].values())

    def capacity(self, resource: str, numas: Numas) -> int:
        """Return how much pods could get there on an empty node."""
        if resource == "cpu":
            return len(self.allocatable_cpus & self.cpus(numas))
        if is_bytes(resource):
            return sum(self.memory.get((resource, numa), 0) for numa in numas)
        return sum(1 for near in self.devices[resource].values() if near & numas)


class Moment:
    """A node at a moment of the recording: just before the operation with a number."""

    def __init__(self, node: RawNode, lines: Iterable[Mapping[str, Any]], before: int) -> None:
        self.node = node
        self.shares: dict[str, Share] = {}
        self.sick: set[tuple[str, str]] = set()
        for line in lines:
            if line["seq"] >= before or line.get("node") != node.name:
                continue
            if line["op"] == "delete":
                self.shares.pop(line["uid"], None)
            elif line["op"] == "device-health":
                device = (line["resource"], line["device"])
                (self.sick.discard if line["health"] == "Healthy" else self.sick.add)(device)
            elif line["op"] == "create" and line["outcome"]["phase"] in {"Running", "Pending"}:
                self.shares[line["uid"]] = _share(line)

    def with_share(self, uid: str, share: Share) -> "Moment":
        """The same moment with one more pod."""
        other = Moment(self.node, (), 0)
        other.shares, other.sick = {**self.shares, uid: share}, self.sick
        return other

    def free(self, resource: str, numas: Numas) -> int:
        """Return how much one container could still get there: CPUs, bytes or devices."""
        if resource == "cpu":
            return len(self.free_cpus & self.node.cpus(numas))
        if is_bytes(resource):
            if any(group & numas and group != numas for group in self.groups):
                return 0
            used = sum(size for kind, where, size in self.blocks if kind == resource and where == numas)
            return self.node.capacity(resource, numas) - used
        anywhere = self.node.without_topology(resource) or len(numas) == len(self.node.cpus_of)
        return sum(
            1
            for device, near in self.node.devices[resource].items()
            if (anywhere or near & numas) and (resource, device) not in self.held_devices
        )

    @cached_property
    def free_cpus(self) -> set[int]:
        """CPUs that nobody has alone, and that may be given away so."""
        return self.node.allocatable_cpus.difference(*(share.cpus for share in self.shares.values()))

    @cached_property
    def blocks(self) -> list[tuple[str, Numas, int]]:
        """All memory in use."""
        return [block for share in self.shares.values() for block in share.blocks]

    @cached_property
    def groups(self) -> set[Numas]:
        """NUMA nodes that memory in use binds together."""
        return {numas for _, numas, size in self.blocks if size}

    @cached_property
    def held_devices(self) -> set[tuple[str, str]]:
        """Devices that nobody else can have: in use, or out of order."""
        return self.sick.union(*(share.devices for share in self.shares.values()))

    def held(self, uid: str, resource: str, numas: Numas) -> int:
        """Return what a pod holds of a resource on NUMA nodes; blocks of memory across them count whole."""
        share = self.shares[uid]
        if resource == "cpu":
            return len(share.cpus & self.node.cpus(numas))
        if is_bytes(resource):
            return sum(size for kind, where, size in share.blocks if kind == resource and where & numas)
        anywhere = len(numas) == len(self.node.cpus_of)
        return sum(
            1
            for kind, device in share.devices
            if kind == resource and (anywhere or self.node.devices[kind][device] & numas)
        )

    def unrequested(self, resource: str) -> Fraction:
        """Return what the scheduler has left of a resource."""
        allocatable = self.node.body["status"]["allocatable"]
        used = sum(
            (scheduled(share.body).get(resource, Fraction(0)) for share in self.shares.values()), Fraction(0)
        )
        return max(amount(allocatable.get(resource, 0)) - used, Fraction(0))

    def hints(self, resource: str, asked: Mapping[str, Fraction]) -> dict[Numas, bool]:
        """Sets of NUMA nodes that would do for a resource, each with whether it is preferred."""
        node = self.node
        together = [name for name in asked if is_bytes(name)] if is_bytes(resource) else [resource]
        hosting = set(node.cpus_of)
        if resource in node.devices:
            hosting = set().union(*node.devices[resource].values())
        looked_at = [numas for numas in node.numa_sets if numas <= hosting]
        wide = [
            len(numas)
            for numas in looked_at
            if all(self._in_machine(name, numas) >= asked[name] for name in together)
        ]
        fewest = min(wide, default=len(node.cpus_of))
        return {
            numas: len(numas) == fewest
            for numas in looked_at
            if all(self.free(name, numas) >= asked[name] for name in together)
        }

    def _in_machine(self, resource: str, numas: Numas) -> int:
        # The CPU Manager counts reserved CPUs when it asks how many NUMA nodes are needed at least.
        return len(self.node.cpus(numas)) if resource == "cpu" else self.node.capacity(resource, numas)


def _share(line: Mapping[str, Any]) -> Share:
    seen = line["observed"]
    share = Share(line["pod"])
    for cpus in (seen["cpu_manager_state"] or {}).values():
        share.cpus |= ids(cpus)
    for blocks in (seen["memory_manager_state"] or {}).values():
        share.blocks += [(block["type"], frozenset(block["numaAffinity"]), block["size"]) for block in blocks]
    for container in (seen["podresources_list"] or {}).values():
        for device in container.get("devices") or ():
            share.devices |= {
                (device["resource"], one) for one in (device["ids"] if "ids" in device else [device["id"]])
            }
    return share


@cache
def node(directory: Path) -> RawNode:
    """A node of a recording that stays as it is."""
    return RawNode(directory)


def history(directory: Path) -> Iterator[Mapping[str, Any]]:
    """All operations of a recording."""
    for text in (directory / "replay.jsonl").read_text().splitlines():
        yield json.loads(text)
