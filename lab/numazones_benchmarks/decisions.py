"""Decisions a second over the reference scenarios, as a ratio to another commit in one run.

A decision is one pod admitted or rejected. Counted is all that the library does for it, from the API's
objects on: nodes made of machine and configuration, pods read, decisions made, pods removed again; only
the file's JSON is parsed beforehand. The other commit is unpacked with ``git archive`` into a temporary
folder. Each tree has a process of its own; they take turns, a few scenarios at a time, so that both meet
the same neighbours on a busy machine, and for each share of the scenarios the least CPU time of all rounds
counts.
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

ROOT = Path(__file__).resolve().parents[2]
BASELINE = "8f24f66"
"""The commit before the issue that asked for this speed."""
SHARE = 50
"""Scenarios at a time."""
PARTS = ("nodes", "pods", "decisions")


def measured(scenarios: list[dict[str, Any]]) -> dict[str, float]:
    """One round: CPU seconds per part, and how many pods were decided on."""
    from numazones.errors import NumazonesError  # noqa: PLC0415
    from numazones.kubelet.admission import admit, remove  # noqa: PLC0415
    from numazones.kubelet.pod import Pod  # noqa: PLC0415
    from tests.conformance import scenario as reading  # noqa: PLC0415 - of the tree under test

    clock = time.process_time
    taken = dict.fromkeys(PARTS, 0.0)
    decided = 0
    for scenario in scenarios:
        start = clock()
        try:
            node = reading.node(scenario)
        except NumazonesError:
            continue
        finally:
            taken["nodes"] += clock() - start
        start = clock()
        pods = [Pod.from_api(step["pod"]) if "pod" in step else None for step in scenario["steps"]]
        read = clock()
        taken["pods"] += read - start
        for step, pod in zip(scenario["steps"], pods, strict=True):
            node = remove(node, step["uid"]) if pod is None else admit(node, pod).node
        taken["decisions"] += clock() - read
        decided += sum(pod is not None for pod in pods)
    return {**taken, "total": sum(taken.values()), "decided": decided}


def work(path: Path) -> None:
    """Run in a process of its own: say how many shares there are, then measure those that are asked for."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        scenarios = [json.loads(line) for line in lines if line.strip()]
    gc.freeze()  # the garbage collector is to walk over what the library makes, not over the file
    shares = [scenarios[start : start + SHARE] for start in range(0, len(scenarios), SHARE)]
    print(len(shares), flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(shares[int(line)])), flush=True)


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


def answer(process: subprocess.Popen[str], share: int | None = None) -> Any:
    """Read what a worker says, having asked it for a share."""
    if share is not None:
        asked = _stream(process.stdin)
        asked.write(f"{share}\n")
        asked.flush()
    line = _stream(process.stdout).readline()
    if not line:
        sys.exit("a worker died; its error is above")
    return json.loads(line)


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


def summary(shares: list[list[dict[str, float]]]) -> dict[str, Any]:
    """The fastest round of each share, added up."""
    best = [min(rounds, key=lambda one: one["total"]) for rounds in shares]
    added = {part: sum(one[part] for one in best) for part in (*PARTS, "total", "decided")}
    return {
        "decisions": int(added["decided"]),
        "cpuSeconds": {part: round(added[part], 3) for part in (*PARTS, "total")},
        "decisionsPerSecond": round(added["decided"] / added["total"]),
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
    parser.add_argument("--tree", type=Path, default=ROOT, help="where the library is (this tree)")
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
        with worker(tree, scenarios) as theirs, worker(options.tree.resolve(), scenarios) as ours:
            shares = range(min(answer(theirs), answer(ours)))
            pairs = [
                [(answer(theirs, share), answer(ours, share)) for _ in range(options.rounds)]
                for share in shares
            ]
    there, here = (summary([[pair[tree] for pair in rounds] for rounds in pairs]) for tree in (0, 1))
    result = {"here": here, options.against: there, "ratio": compared(here, there)}
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name in ("here", options.against):
        one = result[name]
        print(f"{name:8} {one['decisionsPerSecond']:>6} decisions a second {one['cpuSeconds']}")
    print(f"ratio    {result['ratio']['total']:>6} {result['ratio']}")


if __name__ == "__main__":
    main()
