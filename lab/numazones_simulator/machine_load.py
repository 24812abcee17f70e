"""What the CPUs, memory and interrupts of a simulated machine do, in the files where the kernel says so.

Once a second the kernel's counters go on. Exclusive CPUs are as busy as their pod's annotation says, or
as its name decides, the shared pool by how many pods run there, and reserved CPUs a little. A network card
has queues for a few CPUs spread over the machine, exclusive ones among them, as without a tuned irqbalance.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from numazones import cpuset
from numazones.kubelet.machine import Machine
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod

BUSY_ANNOTATION = "simulator.numazones.io/busy"
"""On a pod: the share of its exclusive CPUs that is busy, from 0 to 1."""
_SHARES = (0.85, 0.04, 0.6, 0.35)
"""Shares of pods without the annotation; which one, their names decide."""
_RESERVED, _SHARED_AT_REST, _PER_SHARED_POD, _MOST = 0.3, 0.05, 0.03, 0.95
_TICKS, _KIB = 100, 1024
_QUEUES, _PER_SECOND, _TIMER = 4, 600, 250
_PARTS = {"user": 0.8, "system": 0.18, "softirq": 0.02}
_PERIOD = 1.0


class MachineLoad:
    """The counters of one machine, and the files that show them."""

    def __init__(self, machine: Machine, directory: Path, *, queues: int = _QUEUES) -> None:
        """Write nothing yet; ``directory`` has the machine's ``sys`` and ``proc``."""
        self._machine = machine
        self._queue_count = queues
        self._directory = directory
        self._busy = dict.fromkeys(cpuset.ids(machine.all_cpus), 0.0)
        """CPU → seconds."""
        self._seconds = 0.0
        self._written: dict[str, str] = {}
        self._pages = dict.fromkeys(machine.by_numa, 0.0)

    async def run(self, holdings: Callable[[], tuple[Node, Iterable[Pod]]]) -> None:
        """Go on once a second until cancelled."""
        clock = asyncio.get_running_loop().time
        before = clock()
        while True:
            now = clock()
            self.advance(now - before, *holdings())
            before = now
            writing = asyncio.ensure_future(asyncio.to_thread(self.write))
            try:
                await asyncio.shield(writing)
            finally:
                await writing  # a thread cannot be cancelled, and the directory may be removed next
            await asyncio.sleep(_PERIOD)

    def advance(self, seconds: float, node: Node, pods: Iterable[Pod]) -> None:
        """Let some seconds pass."""
        running = {pod.uid: pod for pod in pods}
        exclusive = node.cpus.exclusive_cpus_by_pod()
        shared = min(_MOST, _SHARED_AT_REST + _PER_SHARED_POD * len(running.keys() - exclusive.keys()))
        share = dict.fromkeys(self._busy, shared)
        share |= dict.fromkeys(cpuset.ids(node.kubelet.cpus.reserved), _RESERVED)
        for uid, held in exclusive.items():
            if uid in running:
                share |= dict.fromkeys(cpuset.ids(held), busy_share(running[uid]))
        for cpu in self._busy:
            self._busy[cpu] += seconds * share[cpu]
        for numa in list(self._pages)[1:]:  # as if the first could not give enough
            self._pages[numa] += seconds * 3
        self._seconds += seconds

    def write(self) -> None:
        """Write the files; each is replaced whole, as a reader of the kernel's sees it."""
        for name, text in self._files():
            if self._written.get(name) == text:
                continue
            self._written[name] = text
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_text(text, encoding="ascii")
            temporary.replace(path)

    def _files(self) -> Iterator[tuple[str, str]]:
        yield "proc/stat", self._stat()
        queues = self._queues()
        yield "proc/interrupts", self._interrupts(queues)
        for number, cpu in queues.items():
            yield f"proc/irq/{number}/effective_affinity_list", f"{cpu}\n"
        numas = list(self._machine.by_numa)
        for numa in numas:
            missed, foreign = (
                int(self._pages[numa]),
                int(sum(self._pages.values())) if numa == numas[0] else 0,
            )
            yield (
                f"sys/devices/system/node/node{numa}/numastat",
                f"numa_hit {int(self._seconds * 1000)}\nnuma_miss {missed}\nnuma_foreign {foreign}\n",
            )

    def _stat(self) -> str:
        rows = []
        for cpu, busy in self._busy.items():
            ticks = {name: int(busy * part * _TICKS) for name, part in _PARTS.items()}
            idle = max(0, int(self._seconds * _TICKS) - sum(ticks.values()))
            rows.append((cpu, (ticks["user"], 0, ticks["system"], idle, 0, 0, ticks["softirq"], 0, 0, 0)))
        total = map(sum, zip(*(row for _, row in rows), strict=True))
        lines = [f"cpu  {_joined(total)}", *(f"cpu{cpu} {_joined(row)}" for cpu, row in rows)]
        return "\n".join([*lines, "intr 0", "ctxt 0", "btime 0", "processes 1", ""])

    def _queues(self) -> dict[int, int]:
        """Interrupt number → the CPU that it is sent to."""
        cpus = list(self._busy)
        count = self._queue_count
        return {24 + queue: cpus[(2 * queue + 1) * len(cpus) // (2 * count)] for queue in range(count)}

    def _interrupts(self, queues: Mapping[int, int]) -> str:
        cpus = list(self._busy)
        packets = int(self._seconds * _PER_SECOND)
        timer = [int(self._busy[cpu] * _TIMER) for cpu in cpus]
        rows = [
            (
                str(number),
                [packets * (cpu == at) for cpu in cpus],
                f"PCI-MSIX nic0-{number}",
            )
            for number, at in queues.items()
        ]
        rows.append(("LOC", timer, "Local timer interrupts"))
        rows.append(("RES", [count // 100 for count in timer], "Rescheduling interrupts"))
        head = " ".join(f"{f'CPU{cpu}':>10}" for cpu in cpus)
        return "\n".join([f"     {head}", *(_line(*row) for row in rows), "ERR:          0", ""])


def busy_share(pod: Pod) -> float:
    """Return how busy a pod keeps its exclusive CPUs, from 0 to 1."""
    text = dict(pod.annotations).get(BUSY_ANNOTATION, "")
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return _SHARES[zlib.crc32(f"{pod.namespace}/{pod.name}".encode()) % len(_SHARES)]


def _line(name: str, counts: Sequence[int], text: str) -> str:
    return f"{name:>4}: {' '.join(f'{count:>10}' for count in counts)}  {text}"


def _joined(values: Iterable[int]) -> str:
    return " ".join(map(str, values))
