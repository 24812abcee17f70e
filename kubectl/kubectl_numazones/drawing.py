"""A node drawn as its kubelet sees it, down to the thread, each CPU marked with who holds it."""

import string
from collections.abc import Iterator

from rich.text import Text

from numazones import cpuset
from numazones.cluster import ClusterNode
from numazones.kubelet.node import Node
from numazones.quantity import format_rounded
from numazones.resources import MEMORY

_COLOURS = (
    "cyan",
    "magenta",
    "blue",
    "yellow",
    "green",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_blue",
)
_RESERVED, _FREE, _SHARED = "▒", "·", "○"
_PLAIN = {_RESERVED: "#", _FREE: ".", _SHARED: "o"}
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


class Drawing:
    """One node's picture, line by line."""

    def __init__(self, node: ClusterNode, state: Node, *, plain: bool) -> None:
        self._node, self._state, self._plain = node, state, plain
        names = node.pod_names
        held: dict[str, int] = {}
        for uid, containers in state.cpus.assignments.items():
            for cpus in containers.values():
                held[uid] = held.get(uid, 0) | cpus
        order = sorted(held, key=lambda uid: (_lowest(held[uid]) if held[uid] else 0, uid))
        self._letters = {uid: _LETTERS[index % len(_LETTERS)] for index, uid in enumerate(order)}
        self._styles = {uid: _COLOURS[index % len(_COLOURS)] for index, uid in enumerate(order)}
        self._names = {uid: names.get(uid, f"uid {uid}") for uid in order}
        self._held = held
        self._holder = {cpu: uid for uid in order for cpu in cpuset.ids(held[uid])}

    def lines(self) -> Iterator[Text]:
        """Yield the picture: a heading, the sockets with their NUMA nodes, the legend."""
        config = self._state.config
        yield Text(
            f"{self._node.name}: {config.topology_manager_policy}, scope {config.topology_manager_scope}, "
            f"CPU manager {config.cpu_manager_policy}, memory manager {config.memory_manager_policy}",
            style="bold",
        )
        machine = self._state.machine
        for socket, cpus_of_socket in sorted(machine.cpus_of_socket.items()):
            yield Text(f"{self._edge('┌')} socket {socket}", style="bold")
            for numa, cpus in machine.cpus_of_numa.items():
                if cpus & cpus_of_socket:
                    yield from self._zone(numa, cpus & cpus_of_socket)
        bare = [numa for numa, cpus in machine.cpus_of_numa.items() if not cpus]
        if bare:
            yield Text(f"{self._edge('┌')} no socket: memory alone", style="bold")
        for numa in bare:
            yield from self._zone(numa, 0)
        yield from self._legend()

    def _zone(self, numa: int, cpus: int) -> Iterator[Text]:
        bar = self._edge("│")
        yield Text(f"{bar}  NUMA node {numa}{self._memory(numa)}", style="bold")
        for cache, cores in self._by_cache(cpus):
            line = Text(f"{bar}    " + (f"L3 {cache}: " if cache is not None else ""))
            for position, core in enumerate(cores):
                line.append(" " if position else "")
                for cpu in cpuset.ids(core):
                    line.append(*self._mark(cpu))
            yield line
        devices = self._devices(numa)
        if devices:
            yield Text(f"{bar}    {devices}")

    def _by_cache(self, cpus: int) -> Iterator[tuple[int | None, list[int]]]:
        """Group a NUMA node's cores by the L3 cache that the kubelet sees."""
        groups: dict[int | None, list[int]] = {}
        machine = self._state.machine
        for core in machine.cpus_of_core.values():
            if core & cpus:
                uncore = machine.by_cpu[_lowest(core)].uncore
                groups.setdefault(uncore, []).append(core)
        for cache, cores in groups.items():
            yield cache, sorted(cores, key=_lowest)

    def _mark(self, cpu: int) -> tuple[str, str]:
        holder = self._holder.get(cpu)
        manager = self._state.kubelet.cpus
        if holder is not None:
            return self._letters[holder], self._styles[holder]
        if manager.static and manager.reserved >> cpu & 1:
            return self._sign(_RESERVED), "dim"
        return self._sign(_FREE if manager.static else _SHARED), "dim"

    def _memory(self, numa: int) -> str:
        """Memory in use and in all, where the memory manager binds it."""
        manager, memory = self._state.kubelet.memory, self._state.memory
        parts = []
        for kind in manager.allocatable:
            position = manager.numas.index(numa)
            whole, used = manager.allocatable[kind][position], memory.reserved[kind][position]
            if whole or used:
                name = "" if kind == MEMORY else f" {kind}"
                parts.append(f"{format_rounded(used)} of {format_rounded(whole)}{name}")
        if not parts:
            amount = self._state.machine.by_numa[numa].memory
            return f"  {format_rounded(amount)} (not managed)" if amount else "  no memory"
        return "  " + ", ".join(parts) + " in use"

    def _devices(self, numa: int) -> str:
        kubelet = self._state.kubelet.devices
        idle = {
            name: kubelet.available(self._state.devices, item) for name, item in kubelet.resources.items()
        }
        parts = []
        for name, resource in kubelet.resources.items():
            here = resource.devices_near(1 << numa)
            if here:
                free = (here & idle[name]).bit_count()
                parts.append(f"{name} {free} of {here.bit_count()} free")
        return "; ".join(parts)

    def _legend(self) -> Iterator[Text]:
        yield Text()
        for uid, letter in self._letters.items():
            line = Text()
            line.append(letter, self._styles[uid])
            line.append(f" {self._names[uid]}: {cpuset.format(self._held[uid])}")
            yield line
        if self._state.kubelet.cpus.static:
            yield Text(
                f"{self._sign(_RESERVED)} reserved   {self._sign(_FREE)} free (shared pool)", style="dim"
            )
        else:
            yield Text(f"{self._sign(_SHARED)} shared: the CPU manager gives no exclusive CPUs", style="dim")

    def _sign(self, sign: str) -> str:
        return _PLAIN[sign] if self._plain else sign

    def _edge(self, edge: str) -> str:
        return {"┌": "+", "│": "|"}[edge] if self._plain else edge


def _lowest(cpus: int) -> int:
    """The lowest CPU of a set; a socket's first for an empty one."""
    return next(iter(cpuset.ids(cpus)), 0)
