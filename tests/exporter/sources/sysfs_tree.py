"""Writes sysfs trees, whole or damaged, as plain files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


@dataclass
class Tree:
    """A sysfs (and procfs) tree below ``root``; everything written stays plain text."""

    root: Path
    nodes: Mapping[int, str]
    """NUMA id → CPU list."""
    threads: int = 1
    """CPU n and its siblings n + k·(CPUs / threads) are one core."""
    caches: Mapping[int, str] = field(default_factory=dict)
    """L3 id → CPU list."""
    offline: str = ""

    @property
    def sysfs(self) -> Path:
        return self.root / "sys"

    @property
    def procfs(self) -> Path:
        return self.root / "proc"

    def write(self) -> "Tree":
        members = {cpu: numa for numa, text in self.nodes.items() for cpu in expand(text)}
        offline = expand(self.offline)
        for cpu, numa in members.items():
            self.put(f"{NODE}/node{numa}/cpu{cpu}/online", "0" if cpu in offline else "1")
            (self.root / CPU / f"cpu{cpu}").mkdir(parents=True, exist_ok=True)
            self.put(f"{CPU}/cpu{cpu}/online", "0" if cpu in offline else "1")
            if cpu not in offline:
                self._topology(cpu, numa, len(members) // self.threads)
        self.put(f"{CPU}/online", join(cpu for cpu in members if cpu not in offline))
        self.put(f"{CPU}/offline", self.offline)
        self.put(f"{CPU}/isolated", "")
        distances = {numa: [10 if other == numa else 21 for other in self.nodes] for numa in self.nodes}
        for numa, text in self.nodes.items():
            self.put(f"{NODE}/node{numa}/cpulist", join(cpu for cpu in expand(text) if cpu not in offline))
            self.put(f"{NODE}/node{numa}/distance", " ".join(map(str, distances[numa])))
            self.put(f"{NODE}/node{numa}/meminfo", f"Node {numa} MemTotal:       1048576 kB")
            self.put(f"{NODE}/node{numa}/hugepages/hugepages-2048kB/nr_hugepages", "3")
        self.put("proc/meminfo", f"MemTotal:       {1048576 * max(1, len(self.nodes))} kB")
        return self

    def _topology(self, cpu: int, numa: int, cores: int) -> None:
        here = f"{CPU}/cpu{cpu}"
        self.put(f"{here}/topology/core_id", str(cpu % cores))
        self.put(f"{here}/topology/physical_package_id", str(numa))
        self.put(f"{here}/topology/die_id", "0")
        for cache, text in self.caches.items():
            if cpu in expand(text):
                self.put(f"{here}/cache/index3/id", str(cache))
                self.put(f"{here}/cache/index3/level", "3")
                self.put(f"{here}/cache/index3/type", "Unified")
                self.put(f"{here}/cache/index3/size", "32768K")
                shared = sum(1 << other for other in expand(text))
                self.put(f"{here}/cache/index3/shared_cpu_map", f"{shared:x}")

    def put(self, path: str, text: str) -> None:
        """Write or replace a file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def remove(self, path: str) -> None:
        (self.root / path).unlink()


def expand(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def join(cpus: object) -> str:
    return ",".join(map(str, cpus))  # type: ignore[call-overload]
