"""Metrics of what CPUs and memory really do, read when Prometheus asks, as those of control groups are.

Nothing of it is part of the zones, which carry what changes seldom. Interrupts are read once an interval,
because on large machines their file is large; CPU times also whenever a CPU changes hands.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from numazones import cpuset
from numazones.api.snapshot import NodeSnapshot
from numazones_exporter.cpu_usage import EXCLUSIVE, ContainerLabels, ContainerUse, CPUKinds, CPUUsage
from numazones_exporter.sources import numa_usage
from numazones_exporter.sources.cpu_times import CPU_TIMES, MODES, CPUTimesReader
from numazones_exporter.sources.interrupts import (
    DEVICE,
    INTERRUPTS,
    PROCESSOR,
    TIMER,
    Disturbance,
    Interrupt,
    InterruptsReader,
    disturbances,
)
from numazones_exporter.sources.numa_usage import NUMA_MEMORY, NUMAUsage
from numazones_node.problems import Problem, SourceError
from numazones_program.gauges import gauge

SOURCES = (CPU_TIMES, NUMA_MEMORY, INTERRUPTS)
"""What is read, as metrics and logs name it."""
_WORST = 10
_NUMA = ("node", "numa_node")
_CONTAINER = ("node", *ContainerLabels._fields)

_log = logging.getLogger(__name__)


class CPUUsageTracker:
    """What CPUs do, kept up between the main loop, which knows who holds them, and scrapes."""

    def __init__(
        self,
        procfs: Path,
        sysfs: Path,
        *,
        interval: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read below these directories; interrupts at most once an interval, in seconds."""
        self._lock = threading.Lock()
        self._sysfs = sysfs
        self._clock, self._interval = clock, interval
        self._times = CPUTimesReader(procfs, sysfs)
        self._interrupts = InterruptsReader(procfs)
        self._cpus = CPUUsage()
        self._interrupts_at: float | None = None
        self._exclusive = 0
        """CPUs that were exclusive since interrupts were last read."""
        self._came: dict[tuple[int, str], int] = {}
        self._worst: list[tuple[Disturbance, str]] = []

    def follow(self, snapshot: NodeSnapshot | None) -> None:
        """Take over who holds which CPUs; what they did so far counts for who held them until now."""
        kinds = CPUKinds() if snapshot is None else CPUKinds.of(snapshot)
        with self._lock:
            if kinds != self._cpus.kinds:
                self._read_times(kinds)
                self._cpus.assign(kinds)
                self._exclusive &= kinds.exclusive

    def read(self) -> tuple[list[Metric], list[Problem]]:
        """Read everything; return the metrics, and what could not be read."""
        with self._lock:
            kinds, memory, problems = self._cpus.kinds, NUMAUsage(), []
            if kinds.node:
                memory = numa_usage.read(self._sysfs, kinds.numas)
                problems = [*self._read_times(kinds), *memory.problems, *self._read_interrupts()]
            families = (
                *_cpu_families(kinds, self._cpus),
                *_memory_families(kinds.node, memory),
                *_interrupt_families(kinds, self._came, self._worst),
            )
        return list(families), problems

    def _read_times(self, kinds: CPUKinds) -> list[Problem]:
        try:
            self._cpus.add(self._times.read(kinds.online))
        except SourceError as error:
            self._cpus.forget()
            return [Problem(CPU_TIMES, error.reason, f"{error}; metrics of CPU time are missing")]
        return []

    def _read_interrupts(self) -> list[Problem]:
        now = self._clock()
        if self._interrupts_at is not None and now - self._interrupts_at < self._interval:
            return []
        before, self._interrupts_at = self._interrupts_at, now
        exclusive, self._exclusive = self._exclusive, self._cpus.kinds.exclusive
        self._worst = []
        try:
            came = self._interrupts.read()
        except SourceError as error:
            self._came = {}
            return [Problem(INTERRUPTS, error.reason, f"{error}; metrics of interrupts are missing")]
        if before is not None:
            self._count(came, exclusive)
            worst = heapq.nlargest(_WORST, disturbances(came, exclusive, max(now - before, 1e-3)))
            self._worst = [(one, self._interrupts.affinity(one.interrupt)) for one in worst]
        return []

    def _count(self, came: Mapping[Interrupt, Mapping[int, int]], exclusive: int) -> None:
        """Add what landed on CPUs that were exclusive all the time."""
        numas = {
            cpu: numa
            for (numa, kind), cpus in self._cpus.kinds.cpus.items()
            if kind == EXCLUSIVE
            for cpu in cpuset.ids(cpus & exclusive)
        }
        for numa in numas.values():
            for source in (DEVICE, PROCESSOR, TIMER):
                self._came.setdefault((numa, source), 0)
        for interrupt, counts in came.items():
            for cpu, count in counts.items():
                if cpu in numas:
                    self._came[numas[cpu], interrupt.kind] += count


class UsageCollector(Collector):
    """Writes the metrics out, and logs once what of them is absent."""

    def __init__(self, usage: CPUUsageTracker, count_error: Callable[[str], None]) -> None:
        """``count_error`` gets the source of each failure."""
        self._usage = usage
        self._count_error = count_error
        self._problems: frozenset[Problem] = frozenset()

    def collect(self) -> list[Metric]:
        """Return the metrics of the moment."""
        families, problems = self._usage.read()
        self._note(problems)
        return families

    def _note(self, problems: list[Problem]) -> None:
        for problem in problems:
            self._count_error(problem.source)
            if problem not in self._problems:
                _log.warning("%s: %s: %s", problem.source, problem.reason, problem.message)
        self._problems = frozenset(problems)


def _counter(
    name: str, documentation: str, labels: tuple[str, ...], figures: Iterator[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, figure in figures:
        family.add_metric(values, figure)
    return family


def _cpu_families(kinds: CPUKinds, usage: CPUUsage) -> Iterator[Metric]:
    node = kinds.node
    yield gauge(
        "numazones_numa_cpus",
        "CPUs of the NUMA node by kind: exclusive (to a container), shared (the pool of all others), "
        "reserved (for the system), offline, or unknown (the kubelet does not report them).",
        (*_NUMA, "kind"),
        (((node, str(numa), kind), cpus.bit_count()) for (numa, kind), cpus in kinds.cpus.items()),
    )
    yield _counter(
        "numazones_numa_cpu_seconds",
        "Seconds that CPUs of the NUMA node spent, by kind of CPU and mode, since the exporter started; user "
        "includes nice and guests, idle includes waiting for disks.",
        (*_NUMA, "kind", "mode"),
        (
            ((node, str(numa), kind, mode), seconds)
            for (numa, kind), total in (usage.seconds.items() if usage.measured else ())
            for mode, seconds in zip(MODES, total, strict=True)
        ),
    )
    containers = {name: use for (name, _), use in usage.containers.items()} if usage.measured else {}
    yield _of_containers(
        node,
        containers,
        "numazones_container_exclusive_cpu_seconds",
        "CPU time of the container's exclusive CPUs, in any mode.",
        lambda use: use.held,
    )
    yield _of_containers(
        node,
        containers,
        "numazones_container_exclusive_cpu_busy_seconds",
        "Time during which the container's exclusive CPUs were not idle.",
        lambda use: use.busy,
    )
    counts = {name: cpus.bit_count() for (name, _), cpus in kinds.containers.items()}
    yield gauge(
        "numazones_container_exclusive_cpus",
        "Exclusive CPUs of the container.",
        _CONTAINER,
        (((node, *name), count) for name, count in counts.items()),
    )


def _of_containers(
    node: str,
    containers: Mapping[ContainerLabels, ContainerUse],
    name: str,
    documentation: str,
    figure: Callable[[ContainerUse], float],
) -> Metric:
    figures = (((node, *one), figure(use)) for one, use in containers.items())
    return _counter(name, documentation, _CONTAINER, figures)


def _memory_families(node: str, found: NUMAUsage) -> Iterator[Metric]:
    for name, text in (
        ("used", "Memory of the NUMA node that is not free, huge pages included."),
        ("free", "Free memory of the NUMA node."),
        ("file", "Memory of the NUMA node that caches files."),
    ):
        figures = (((node, str(numa)), size) for (numa, one), size in found.memory.items() if one == name)
        yield gauge(f"numazones_numa_memory_{name}_bytes", text, _NUMA, figures)
    yield gauge(
        "numazones_numa_hugepages_free_bytes",
        "Free huge pages of the NUMA node.",
        (*_NUMA, "resource"),
        (((node, str(numa), resource), size) for (numa, resource), size in found.free_hugepages.items()),
    )
    for name, text in (
        ("miss", "Pages allocated on the NUMA node since boot although the process preferred another one."),
        (
            "foreign",
            "Pages since boot that processes wanted on this NUMA node but got on another one.",
        ),
    ):
        pages = (((node, str(numa)), count) for (numa, one), count in found.pages.items() if one == name)
        yield _counter(f"numazones_numa_{name}_pages", text, _NUMA, pages)


def _interrupt_families(
    kinds: CPUKinds, came: Mapping[tuple[int, str], int], worst: list[tuple[Disturbance, str]]
) -> Iterator[Metric]:
    yield _counter(
        "numazones_numa_exclusive_cpu_interrupts",
        "Interrupts on exclusive CPUs of the NUMA node, by source: device (numbered interrupts, which "
        "an affinity can keep away), processor (sent between CPUs or raised by them), or timer.",
        (*_NUMA, "source"),
        (((kinds.node, str(numa), source), count) for (numa, source), count in came.items()),
    )
    numa_of = {cpu: numa for (numa, _), cpus in kinds.cpus.items() for cpu in cpuset.ids(cpus)}
    yield gauge(
        "numazones_exclusive_cpu_interrupts_per_second",
        "The ten most frequent interrupts on an exclusive CPU between the last two readings, timer ticks "
        "excluded; affinity lists the CPUs that the kernel may send them to.",
        (*_NUMA, "cpu", "interrupt", "description", "affinity"),
        (
            (
                (
                    kinds.node,
                    str(numa_of.get(one.cpu, "")),
                    str(one.cpu),
                    one.interrupt.name,
                    one.interrupt.description,
                    affinity,
                ),
                one.per_second,
            )
            for one, affinity in worst
        ),
    )
