"""Topology hints: where a container's devices are, and how well a pool suits that.

A hint says CPUs, NUMA nodes or sockets. Hints of NUMA nodes alone are turned into the nodes' CPUs
before they are scored. Hints come from writable devices and from the kubelet's pod-resources service.
Mounts give hints too in the released code, by a path that only the node knows; they are not modelled.
"""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.cpuset import CPUSet
from numazones.kubelet import go
from numazones_topology_aware import glob, go_yaml
from numazones_topology_aware.go_yaml import InvalidDocument
from numazones_topology_aware.hardware import Device, Hardware
from numazones_topology_aware.pools import Pool, PoolKind, Tree
from numazones_topology_aware.rejection import PluginCrash
from numazones_topology_aware.sandbox import ContainerDevice, ContainerSpec, Sandbox
from numazones_topology_aware.topology import Package, Topology

POD_RESOURCES = "podresourceapi:"
_SOURCES = {"mounts", "devices", "pod-resources"}
_OVERFIT = 0.9
_SYS_DEVICES = "/sys/devices/"


@dataclass(frozen=True, slots=True)
class Hint:
    """Position of one device, or of the devices of one resource; texts are lists of ids."""

    cpus: str = ""
    numas: str = ""
    sockets: str = ""

    @property
    def cpu_set(self) -> CPUSet:
        """The CPUs; none where the list is unreadable."""
        return _cpu_mask(self.cpus)

    def stray(self, cpus: CPUSet, topology: Topology) -> CPUSet:
        """Return the CPUs that lie elsewhere than the hint says, as far as it says anything."""
        stray = 0
        for allowed in (self.cpu_set, topology.cpus_of_numas(cpuset.ids(_cpu_mask(self.numas)))):
            if allowed:
                stray |= cpus & ~allowed
        return stray


Hints = Mapping[str, Hint]
"""Provider (sysfs path, or ``podresourceapi:RESOURCE``) → hint."""


def of_container(sandbox: Sandbox, container: ContainerSpec, topology: Topology) -> dict[str, Hint]:
    """Return a container's hints; the first source of a provider counts."""
    sources = _wanted_sources(sandbox.preference("topologyhints", container.name))
    listed = sandbox.devices.get(container.name, ())
    if not sources or not (container.devices or listed):
        return {}
    filters = _Filters.of(sandbox, container.name)
    hints: dict[str, Hint] = {}
    if "devices" in sources:
        for device in container.devices:
            if "w" in device.access:
                for provider, hint in _device_hints(device, topology.hardware, filters):
                    hints.setdefault(provider, hint)
    if "pod-resources" in sources:
        for entry in listed:
            provider = f"{POD_RESOURCES}{entry.resource}"
            if entry.numas and not filters.denies(provider):
                # Of several entries of one resource the last counts.
                hints[provider] = Hint(numas=",".join(map(str, entry.numas)))
    return {provider: _resolve(hint, topology) for provider, hint in hints.items()}


def wants_device_hints(sandbox: Sandbox, container: str) -> bool:
    """Return whether device hints are created for a container."""
    return bool(_wanted_sources(sandbox.preference("topologyhints", container)) - {"mounts"})


def score(hint: Hint, pool: Pool, tree: Tree, topology: Topology) -> float:
    """Return how much of a hint a pool covers, from 0 to 1.

    Raises:
        PluginCrash: the code would call itself for ever.
    """
    if hint.cpus:
        wanted = hint.cpu_set
        return (wanted & _scored_cpus(pool, topology)).bit_count() / wanted.bit_count() if wanted else 0.0
    if hint.numas:
        return _numa_score(hint, pool, tree, topology)
    return _socket_score(hint, pool, tree, topology) if hint.sockets else 0.0


def combine(scores: list[float]) -> tuple[float, float]:
    """Product of all scores, and of those that are not zero (0 if there are none)."""
    if not scores:
        return 0.0, 0.0
    product, without_zeros = 1.0, 0.0
    for one in scores:
        product *= one
        if one:
            without_zeros = without_zeros * one if without_zeros else one
    return product, without_zeros


def _scored_cpus(pool: Pool, topology: Topology) -> CPUSet:
    # The code scores a die by the CPUs of its whole package.
    return _package(pool, topology).cpus if pool.kind is PoolKind.DIE else pool.cpus


def _package(pool: Pool, topology: Topology) -> Package:
    return next(package for package in topology.packages if package.id == pool.package)


def _numa_score(hint: Hint, pool: Pool, tree: Tree, topology: Topology) -> float:
    wanted = _ids(hint.numas)
    if pool.kind is PoolKind.ROOT:
        return _OVERFIT * _OVERFIT
    if pool.kind is PoolKind.NUMA:
        return float(pool.hardware_id in wanted)
    if pool.kind is PoolKind.SOCKET:
        return _OVERFIT * float(any(numa in wanted for numa in _package(pool, topology).numas))
    if pool.kind is PoolKind.DIE:
        die = next(die for die in _package(pool, topology).dies if die.id == pool.hardware_id)
        return _OVERFIT * float(any(numa in wanted for numa in die.numas))
    parent = tree.pools[pool.parent]
    if parent.kind is not PoolKind.NUMA:
        raise PluginCrash(
            f"the plugin would recurse forever when scoring {pool.name} for a device on NUMA node "
            f"{hint.numas}, which has no CPUs"
        )
    return _OVERFIT * float(parent.hardware_id in wanted)


def _socket_score(hint: Hint, pool: Pool, tree: Tree, topology: Topology) -> float:
    if pool.kind is PoolKind.ROOT:
        return _OVERFIT
    if pool.kind is PoolKind.L3:
        return _OVERFIT * _socket_score(hint, tree.pools[pool.parent], tree, topology)
    package = _package(pool, topology)
    if package.id not in _ids(hint.sockets):
        return 0.0
    if pool.kind is PoolKind.NUMA:
        return 1.0 / len(package.numas)
    if pool.kind is PoolKind.DIE:
        return 1.0 / len(next(die for die in package.dies if die.id == pool.hardware_id).numas)
    return 1.0


def _wanted_sources(preference: str | None) -> set[str]:
    if preference is None:
        return _SOURCES
    try:
        return _SOURCES if go.parse_bool(preference) else set()
    except ValueError:
        words = preference.split(",")
    if "none" in words:
        return set()
    return _SOURCES if "all" in words else _SOURCES & set(words)


@dataclass(frozen=True, slots=True)
class _PathList:
    """Paths of an allow or deny annotation."""

    paths: tuple[str, ...]
    globs: bool

    @classmethod
    def of(cls, annotation: str | None) -> "_PathList | None":
        if annotation is None:
            return None
        try:
            read = go_yaml.fields(go_yaml.load(annotation), "type", "paths")
            kind = read.get("type", "prefix")
            paths = go_yaml.texts(read.get("paths"))
        except InvalidDocument:
            return None
        return cls(paths, kind == "glob") if kind in {"prefix", "glob"} else None

    def includes(self, path: str) -> bool | None:
        """Return whether a path is on the list; None if a broken pattern ends the search."""
        for listed in self.paths:
            if not self.globs:
                matched = path.startswith(listed)
            elif glob.valid(listed):
                matched = glob.matches(listed, path)
            else:
                return None
            if matched:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Filters:
    """Providers whose hints a pod declines."""

    deny: _PathList | None
    allow: _PathList | None

    @classmethod
    def of(cls, sandbox: Sandbox, container: str) -> "_Filters":
        lists = [
            _PathList.of(sandbox.preference(f"{kind}.topologyhints", container)) for kind in ("deny", "allow")
        ]
        return cls(*lists)

    def denies(self, path: str) -> bool:
        """Return whether hints are denied, and not allowed by the other list."""
        denied = self.deny.includes(path) if self.deny is not None else False
        if denied is None:
            return False
        return denied and not (self.allow is not None and self.allow.includes(path))


def _device_hints(
    wanted: ContainerDevice, hardware: Hardware, filters: _Filters
) -> Iterator[tuple[str, Hint]]:
    device = next(
        (
            one
            for one in hardware.devices
            if (one.kind, one.major, one.minor) == (wanted.kind, wanted.major, wanted.minor)
        ),
        None,
    )
    if device is not None and not filters.denies(f"{_SYS_DEVICES}{device.path}"):
        found = _nearest_hint(device.path, hardware)
        if found is not None:
            yield found


def _nearest_hint(path: str, hardware: Hardware) -> tuple[str, Hint] | None:
    """The hint of a device or else of the nearest device above it that has one."""
    by_path = {device.path: device for device in hardware.devices}
    while path:
        device = by_path.get(path)
        if device is not None and (hint := _own_hint(device, hardware)) != Hint():
            return f"{_SYS_DEVICES}{path}", hint
        path = posixpath.dirname(path)
    return None


def _own_hint(device: Device, hardware: Hardware) -> Hint:
    hint = Hint(device.cpus or "", "" if device.numa in {None, -1} else str(device.numa))
    if not hint.numas or hint.cpus:
        return hint
    above = _nearest_hint(posixpath.dirname(device.path), hardware)
    if above is not None:
        hint = replace(hint, cpus=above[1].cpus, numas=above[1].numas or hint.numas)
    if hint.cpus:
        return hint
    # Without CPUs the code takes the NUMA number for a socket's.
    return Hint(sockets=hint.numas)


def _resolve(hint: Hint, topology: Topology) -> Hint:
    if hint.cpus or not hint.numas:
        return hint
    numas = cpuset.ids(_cpu_mask(hint.numas))
    return replace(hint, cpus=cpuset.format(topology.cpus_of_numas(numas) & topology.online))


def _cpu_mask(text: str) -> int:
    try:
        return go.parse_cpu_list(text)
    except ValueError:
        return 0


def _ids(text: str) -> frozenset[int]:
    """Read single ids; the code reads no ranges here."""
    parts = text.split(",")
    return frozenset(int(part) for part in parts) if all(part.isdigit() for part in parts) else frozenset()
