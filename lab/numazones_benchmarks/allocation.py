"""Time the allocation of claims: the median for all nodes of a scenario, against the scheduler's own code.

Timed is what ``NewAllocator`` and ``Allocate`` do there, with compiled selectors. ``medianMicros`` is the
question of a program that has asked about these slices before (which devices a selector means is known);
``freshMicros`` is the first question about slices that have just been read.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numazones.dra.allocation import AllocationOutcome
from numazones.dra.allocator import Allocator
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.slices import DeviceSlices
from tests.conformance import dra

MAX_RUNS = 500
_GOAL = 3


def measure(scenario: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Medians for one scenario, and the ratio to the scheduler's."""
    rules = dra.rules_of(scenario)
    classes = {one.name: one for one in map(DeviceClass.from_api, scenario["deviceClasses"])}
    slices = [Slice.from_api(body) for body in scenario["resourceSlices"]]
    claims = [DeviceClaim.from_api(body) for body in scenario["claims"]]
    places = [dra.place_of(body) for body in scenario["nodes"]]
    allocated, prepared = dra.allocated_of(scenario, rules), DeviceSlices(slices)

    def ask(of: DeviceSlices) -> Sequence[AllocationOutcome]:
        allocator = Allocator(of, classes, allocated, rules)
        return [allocator.allocate(place, claims) for place in places]

    steps = sum(outcome.steps for outcome in ask(prepared))
    median, fresh = (
        _median(lambda: ask(prepared), seconds),
        _median(lambda: ask(DeviceSlices(slices)), seconds),
    )
    reference = scenario["timing"]["medianMicros"]
    return {
        "id": scenario["id"],
        "title": scenario.get("title", ""),
        "medianMicros": round(median, 1),
        "freshMicros": round(fresh, 1),
        "referenceMicros": reference,
        "ratio": round(median / reference, 3),
        "freshRatio": round(fresh / reference, 3),
        "steps": steps,
    }


def _median(run: Callable[[], object], seconds: float) -> float:
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(taken) < 3 or (time.perf_counter() < deadline and len(taken) < MAX_RUNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def main() -> None:
    """Measure the scenarios of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=Path, required=True, help="vectors with timing (bench.jsonl)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    lines = options.scenarios.read_text().splitlines()
    results = [measure(json.loads(line), options.seconds) for line in lines if line.strip()]
    if options.json:
        print(json.dumps({"goal": _GOAL, "results": results}, indent=2))
        return
    for one in results:
        print(
            f"{one['id']:10} {one['medianMicros']:>10.1f} {one['freshMicros']:>10.1f} "
            f"{one['referenceMicros']:>10.1f} {one['ratio']:>6.2f} {one['freshRatio']:>6.2f}  {one['title']}"
        )


if __name__ == "__main__":
    main()
