"""Metrics of the machine that runs the tests, against the kernel's files as other code reads them."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from prometheus_client import CollectorRegistry

from numazones import cpuset
from numazones.api.snapshot import ContainerHolding, NodeSnapshot
from numazones.kubelet.machine import Machine
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.usage_metrics import CPUUsageTracker
from numazones_node.sysfs import SysfsReader

MODES = {"user": (0, 1), "system": (2,), "idle": (3, 4), "irq": (5,), "softirq": (6,), "steal": (7,)}
"""Mode → columns of /proc/stat."""
TICK = 0.01
BUSY_SECONDS = 1.5
RATES = re.compile(r"^ *(\S+):((?: +\d+)+)(.*)$")


def stat() -> dict[int, list[int]]:
    """CPU → ticks by column, of /proc/stat."""
    lines = Path("/proc/stat").read_text().splitlines()
    rows = [line[3:].split() for line in lines if re.match(r"cpu\d", line)]
    return {int(cpu): [int(value) for value in values] for cpu, *values in rows}


def ticks(rows: dict[int, list[int]], cpus: list[int], mode: str) -> int:
    return sum(rows[cpu][column] for cpu in cpus for column in MODES[mode])


def interrupts(cpu: int) -> int:
    """Interrupts of numbered lines that a CPU has had."""
    head, *lines = Path("/proc/interrupts").read_text().splitlines()
    column = head.split().index(f"CPU{cpu}")
    found = filter(None, map(RATES.match, lines))
    return sum(
        int(match[2].split()[column]) for match in found if match[1].isdigit() and "timer" not in match[3]
    )


@contextmanager
def busy_process(cpu: int) -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        psutil.Process(process.pid).cpu_affinity([cpu])
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


class Exported:
    """The metrics of this machine, whose last CPU belongs to a container."""

    def __init__(self) -> None:
        self.machine: Machine = SysfsReader(Path("/sys"), Path("/proc")).read().value.machine
        self.cpus = sorted(psutil.Process().cpu_affinity())
        self.own = self.cpus[-1]
        self.now = 0.0
        self.registry = CollectorRegistry()
        usage = CPUUsageTracker(Path("/proc"), Path("/sys"), clock=lambda: self.now)
        ExporterMetrics(self.registry, usage=usage)
        mask, every = 1 << self.own, self.machine.all_cpus
        usage.follow(
            NodeSnapshot(
                "here",
                self.machine,
                reserved_cpus=0,
                default_cpus=every & ~mask,
                exclusive_cpus=mask,
                holders=(ContainerHolding("default", "busy", "1", "app", cpus=mask),),
            )
        )

    def scrape(self) -> dict[tuple[str, ...], float]:
        """Name, kind or source, mode → sums over NUMA nodes."""
        found: dict[tuple[str, ...], float] = {}
        for family in self.registry.collect():
            for sample in family.samples:
                labels = (sample.labels.get(name, "") for name in ("kind", "source", "mode"))
                key = tuple(filter(None, (sample.name, *labels)))
                found[key] = found.get(key, 0.0) + sample.value
        return found


@pytest.mark.skipif(len(psutil.Process().cpu_affinity()) < 2, reason="one CPU is busy, one is not watched")
def test_use_of_a_pinned_process_equals_the_kernels_counts() -> None:
    exported = Exported()
    around = [stat()]
    first = exported.scrape()
    exported.now = 60.0
    irqs = [interrupts(exported.own)]
    exported.scrape()  # the first reading of interrupts is what later ones are compared with
    irqs.append(interrupts(exported.own))
    around.append(stat())
    with busy_process(exported.own) as process:
        time.sleep(BUSY_SECONDS)
        used = sum(process.cpu_times()[:2])
        around.append(stat())
        irqs.append(interrupts(exported.own))
        exported.now = 120.0
        second = exported.scrape()
        irqs.append(interrupts(exported.own))
        around.append(stat())
    shared = [cpu for cpu in cpuset.ids(exported.machine.all_cpus) if cpu != exported.own]
    for kind, cpus in (("exclusive", [exported.own]), ("shared", shared)):
        for mode in MODES:
            key = ("numazones_numa_cpu_seconds_total", kind, mode)
            counted = second[key] - first[key]
            least = ticks(around[2], cpus, mode) - ticks(around[1], cpus, mode)
            most = ticks(around[3], cpus, mode) - ticks(around[0], cpus, mode)
            assert least * TICK - 1e-6 <= counted <= most * TICK + 1e-6, key
    held = second["numazones_container_exclusive_cpu_seconds_total",]
    busy = second["numazones_container_exclusive_cpu_busy_seconds_total",]
    assert used - 2 * TICK <= busy <= held
    landed = second["numazones_numa_exclusive_cpu_interrupts_total", "device"]
    assert irqs[2] - irqs[1] <= landed <= irqs[3] - irqs[0]


def test_memory_of_each_numa_node_is_what_the_kernel_says() -> None:
    found = Exported().scrape()
    for name, line in (("free", "MemFree"), ("used", "MemUsed"), ("file", "FilePages")):
        said = 0
        for file in Path("/sys/devices/system/node").glob("node[0-9]*/meminfo"):
            said += sum(int(row.split()[-2]) for row in file.read_text().splitlines() if f" {line}:" in row)
        assert found[f"numazones_numa_memory_{name}_bytes",] == pytest.approx(said * 1024, rel=0.05)
