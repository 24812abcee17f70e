"""Time one admission: the median of deciding on a new pod on an empty node.

Timed is the whole decision: reading the pod's requests, hints, merge, allocation and the new node.
Node and pod are built anew for every run, outside the timed part; nothing is kept from one decision
to the next except tables about the machine. With ``--reference`` the ratio to the kubelet's own
medians is added (``bench_reference.json``; where the kubelet did not finish, its extrapolated time).
"""

import argparse
import dataclasses
import gc
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from numazones.kubelet.admission import admit
from numazones.kubelet.pod import Pod
from numazones.kubelet.rejection import KubeletHang
from tests.conformance import scenario as reading

MAX_RUNS = 2000


def measure(scenario: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Median of as many decisions as fit into some seconds, at least five."""
    taken: list[float] = []
    admitted: bool | None = None
    deadline = time.perf_counter() + seconds
    parsed = Pod.from_api(scenario["steps"][0]["pod"])
    while len(taken) < 5 or (time.perf_counter() < deadline and len(taken) < MAX_RUNS):
        node = reading.node(scenario)
        gc.collect(0)
        start = time.perf_counter()
        try:
            admitted = admit(node, dataclasses.replace(parsed)).admitted
        except KubeletHang:  # no verdict; how long it takes to say so is measured
            admitted = None
        taken.append(time.perf_counter() - start)
    return {
        "id": scenario["id"],
        "medianMicros": round(statistics.median(taken) * 1e6, 1),
        "minMicros": round(min(taken) * 1e6, 1),
        "runs": len(taken),
        "admitted": admitted,
    }


def reference_micros(path: Path) -> dict[str, float]:
    """The kubelet's median, or its extrapolated time, per scenario."""
    results = json.loads(path.read_text())["results"]
    return {
        item["id"]: item["medianMicros"] if item["completed"] else item["estimatedMicros"] for item in results
    }


def scenarios(path: Path) -> Iterator[dict[str, Any]]:
    """The scenarios of a file."""
    for line in path.read_text().splitlines():
        if line.strip():
            yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=Path, required=True, help="scenarios with one admit step each")
    parser.add_argument("--reference", type=Path, help="the kubelet's times, to print ratios")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per scenario (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    reference = reference_micros(options.reference) if options.reference else {}
    results = []
    for scenario in scenarios(options.scenarios):
        result = measure(scenario, options.seconds)
        if scenario["id"] in reference:
            result["referenceMicros"] = reference[scenario["id"]]
            result["ratio"] = round(result["medianMicros"] / reference[scenario["id"]], 9)
        results.append(result)
    if options.json:
        print(json.dumps({"results": results}, indent=1))
        return
    for result in results:
        ratio = f"  {result['ratio']:.3g} of the kubelet's" if "ratio" in result else ""
        print(f"{result['id']:48} {result['medianMicros']:>10.1f} µs  {result['runs']:>5} runs{ratio}")


if __name__ == "__main__":
    main()
