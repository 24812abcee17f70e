"""Decisions a second over the reference scenarios, as a ratio to another commit in one run.

A decision is one pod admitted or rejected. Counted is all that the library does for it, from the API's
objects on: nodes made of machine and configuration, pods read, decisions made, pods removed again; only
the file's JSON is parsed beforehand. The other commit is unpacked with ``git archive`` into a temporary
folder. Each tree has a process of its own; they take turns, round by round, so that both meet the same
neighbours on a busy machine, and the least CPU time of all rounds counts.
"""

import argparse
import contextlib
import gc
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
BASELINE = "8f24f66"
"""The commit before the issue that asked for this speed."""
PARTS = ("nodes", "pods", "decisions", "removals")


def measured(scenarios: list[dict[str, Any]]) -> dict[str, float]:
    """One round: CPU seconds per part, and how many pods were decided on."""
    from numazones.conformance import scenario as reading  # noqa: PLC0415 - of the tree under test
    from numazones.errors import NumazonesError  # noqa: PLC0415
    from numazones.kubelet.admission import admit, remove  # noqa: PLC0415
    from numazones.pod import Pod  # noqa: PLC0415

    clock = time.process_time
    taken = dict.fromkeys(PARTS, 0.0)
    decided = 0
    for scenario in scenarios:
        start = clock()
        node = None
        with contextlib.suppress(NumazonesError):
            node = reading.node(scenario)
        taken["nodes"] += clock() - start
        if node is None:
            continue
        for step in scenario["steps"]:
            start = clock()
            if step["op"] == "remove":
                node = remove(node, step["uid"])
                taken["removals"] += clock() - start
                continue
            pod = Pod.from_api(step["pod"])
            read = clock()
            node = admit(node, pod).node
            taken["decisions"] += clock() - read
            taken["pods"] += read - start
            decided += 1
    return {**taken, "total": sum(taken.values()), "decided": decided}


def work(path: Path) -> None:
    """Run in a process of its own: a round for every line on standard input."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        scenarios = [json.loads(line) for line in lines if line.strip()]
    gc.freeze()  # the garbage collector is to walk over what the library makes, not over the file
    for _ in sys.stdin:
        print(json.dumps(measured(scenarios)), flush=True)


@contextlib.contextmanager
def worker(tree: Path, scenarios: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that measures the library of a tree."""
    command = [sys.executable, __file__, "--work", "--scenarios", str(scenarios)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        _stream(process.stdin).close()


def round_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """Let a worker measure once."""
    asked = _stream(process.stdin)
    asked.write("\n")
    asked.flush()
    answer = _stream(process.stdout).readline()
    if not answer:
        sys.exit("a worker died; its error is above")
    round_: dict[str, float] = json.loads(answer)
    return round_


def _stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise TypeError("the worker was started without pipes")
    return stream


def unpacked(commit: str, folder: Path) -> Path:
    """The library at a commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "numazones"], check=True, capture_output=True
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The least time of each part, and what it comes to."""
    best = {part: min(one[part] for one in rounds) for part in PARTS}
    total = min(one["total"] for one in rounds)
    return {
        "decisions": int(rounds[0]["decided"]),
        "cpuSeconds": {
            **{part: round(seconds, 3) for part, seconds in best.items()},
            "total": round(total, 3),
        },
        "decisionsPerSecond": round(rounds[0]["decided"] / total),
    }


def compared(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, float]:
    """How many times as fast this tree is, per part and in all."""
    return {
        part: round(there["cpuSeconds"][part] / max(here["cpuSeconds"][part], 0.001), 2)
        for part in (*PARTS, "total")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scenarios", type=Path, required=True, help="reference scenarios, JSON lines, .gz too"
    )
    parser.add_argument("--against", default=BASELINE, help="the commit to compare with (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per tree (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    scenarios = options.scenarios.resolve()
    if options.work:
        work(scenarios)
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = unpacked(options.against, Path(folder))
        with worker(tree, scenarios) as theirs, worker(ROOT, scenarios) as ours:
            rounds = [(round_of(theirs), round_of(ours)) for _ in range(options.rounds)]
    there, here = summary([pair[0] for pair in rounds]), summary([pair[1] for pair in rounds])
    result = {"here": here, options.against: there, "ratio": compared(here, there)}
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        print()
        return
    for name in ("here", options.against):
        one = result[name]
        print(f"{name:8} {one['decisionsPerSecond']:>6} decisions a second {one['cpuSeconds']}")
    print(f"ratio    {result['ratio']['total']:>6} {result['ratio']}")


if __name__ == "__main__":
    main()
