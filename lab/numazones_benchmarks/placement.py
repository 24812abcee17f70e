"""Which way of choosing nodes leaves out the fewest pods: over loads, machines, policies and scopes.

Pods that come and go arrive at nodes, and each way of choosing places the same arrivals
(``numazones.whatif``); every third pod has two containers, so that scopes differ. ``default`` is
kube-scheduler, ``nrt`` its plugin NodeResourceTopologyMatch; others ask what each kubelet would decide. Told
per way, of 100 arrivals: those that were left out, by size, and those of them that a kubelet rejected; of 100
free CPUs those that no further pod of 14 CPUs can use; of 100 admitted pods those across NUMA nodes.

Pods arrive once. With ``--plans`` those that were left out and have not left are tried again at the end of a
run, in the order of their arrival: a node takes them by now, or a rebalance plan makes room with some
evictions (at most 5), or no plan is found. Told are pods and evictions a run.

The ways are compared draw by draw: a kind of machines at a load in one run, whose arrivals all ways and
policies see. Told are the mean difference to the default way over the draws, and its 95 % interval.
Seeds are fixed: the same command prints the same figures, however many processes make them.

    .venv/bin/python -m numazones_benchmarks.placement --sample 3 --plans

With ``--output FILE`` each combination's rows are written as soon as they are known, as JSON lines; the same
command later goes on with what the file lacks, also with a larger ``--sample``. ``--plot FILE.svg`` draws
the rows.

With ``--recording DIRECTORY`` (a history, or what ``kubectl numazones record`` wrote) its pods arrive
instead, in their order, at the recorded nodes with their own settings and under each policy; no node is
named.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from kubectl_numazones.reading.bad_dump import BadDump
from numazones.apimachinery.resources import CPU
from numazones.cluster.cluster import ClusterPod
from numazones.placement.fragmentation import Shape
from numazones.prediction.node_choice import ASKING, NodeChoice
from numazones.whatif.trial import UNSCHEDULABLE, Played, play
from numazones_benchmarks.placement_plans import Needed, needed
from numazones_benchmarks.placement_workloads import MACHINES, POLICIES, Combination, drawn, recorded

SHAPE = Shape.parse("cpu=14,memory=2Gi")
SIZES = {"small": range(1, 5), "medium": range(5, 10), "large": range(10, 1 << 10)}
"""By CPUs."""
WITHIN = 2.0
"""Of 100 arrivals: as good as the best."""
REFERENCE = ASKING[0]
"""What predictions, gate and extender rank by unless told otherwise."""
NORMAL_95 = 1.96
_MILLI = 1000

Row = dict[str, Any]


def rows_of(combination: Combination, *, runs: int, seed: int, effort: int) -> list[Row]:
    """Return the figures of every way of choosing; those of plans only if they may cost some effort."""
    nodes = combination.nodes()
    events = [combination.events(seed, run) for run in range(runs)]
    rows = []
    for choice in NodeChoice:
        played = [play(nodes, one, shape=SHAPE, choice=choice) for one in events]
        row = {
            "machines": combination.machines,
            "policy": combination.policy,
            "load": combination.load,
            "placement": choice.value,
            **figures(played),
        }
        if effort:
            row |= planned(
                [needed(one.nodes, what, effort=effort) for one, what in zip(played, events, strict=True)]
            )
        rows.append(row)
    return rows


def figures(played: list[Played]) -> Row:
    """Mean figures of some runs, and what each left out."""
    outcomes = [one.outcome for one in played]
    left_out = [100 * (one.arrived - one.admitted) / one.arrived for one in outcomes]
    sizes = {
        f"left_out_{size}": fmean(
            100 * sum(cpus_of(pod) in within for pod in one.left_out) / one.outcome.arrived for one in played
        )
        for size, within in SIZES.items()
    }
    return {
        "left_out_by_run": left_out,
        "left_out": fmean(left_out),
        **sizes,
        "rejected_by_kubelets": fmean(
            100 * sum(number for reason, number in one.rejected if reason != UNSCHEDULABLE) / one.arrived
            for one in outcomes
        ),
        "stranded": fmean(100 * (one.stranded or 0) / max(one.free, 1) for one in outcomes),
        "across": fmean(100 * one.crossing / max(one.admitted, 1) for one in outcomes),
    }


def planned(found: list[Needed]) -> dict[str, float]:
    """Mean figures of what waits at the end of some runs."""
    return {
        "waiting": fmean(one.waiting for one in found),
        "waiting_that_fit": fmean(one.fit for one in found),
        "waiting_with_plan": fmean(one.planned for one in found),
        "waiting_without_plan": fmean(one.without_plan for one in found),
        "evictions": fmean(one.evictions for one in found),
    }


def cpus_of(pod: ClusterPod) -> int:
    """Whole CPUs that a pod asks for."""
    return max(pod.requests.get(CPU, 0) // _MILLI, 1)


MEANS = (
    "left_out",
    *(f"left_out_{size}" for size in SIZES),
    "rejected_by_kubelets",
    "stranded",
    "across",
)
WITH_PLANS = ("waiting", "waiting_that_fit", "waiting_with_plan", "waiting_without_plan", "evictions")


def summary(found: list[Row]) -> dict[str, dict[str, float | None]]:
    """Per way: means over everything, how it compares with the reference, and with the best of each."""
    best: dict[tuple[Any, ...], float] = {}
    for row in found:
        best[key_of(row)] = min(best.get(key_of(row), 100.0), row["left_out"])
    names = MEANS + (WITH_PLANS if all(name in row for row in found for name in WITH_PLANS) else ())
    reference = by_draw(found, REFERENCE)
    told: dict[str, dict[str, float | None]] = {}
    for choice in NodeChoice:
        mine = [row for row in found if row["placement"] == choice.value]
        behind = [row["left_out"] - best[key_of(row)] for row in mine]
        draws = by_draw(found, choice)
        differences = [draws[draw] - reference[draw] for draw in reference]
        told[choice.value] = {name: round(fmean(row[name] for row in mine), 2) for name in names} | {
            f"more_than_{REFERENCE.value}": round(fmean(differences), 2),
            "plus_or_minus": half_interval(differences),
            "behind_the_best_at_worst": round(max(behind), 2),
            "within_2_of_the_best": round(fmean(one <= WITHIN for one in behind), 3),
        }
    return told


def by_draw(found: Iterable[Row], choice: NodeChoice) -> dict[tuple[Any, ...], float]:
    """Return (machines, load, run) → what a way leaves out, the mean of the policies that were played."""
    left_out: dict[tuple[Any, ...], list[float]] = {}
    for row in found:
        if row["placement"] == choice.value:
            for run, value in enumerate(row["left_out_by_run"]):
                left_out.setdefault((row["machines"], row["load"], run), []).append(value)
    return {draw: fmean(values) for draw, values in left_out.items()}


def half_interval(differences: list[float]) -> float | None:
    """Half of the normal 95 % interval of the mean; None: a single draw has none."""
    if len(differences) <= 1:
        return None
    return round(NORMAL_95 * stdev(differences) / sqrt(len(differences)), 2)


def left_out_by(name: str, found: list[Row]) -> dict[str, dict[str, float]]:
    """Return value of a column → way → mean of 100 arrivals left out."""
    return {
        str(value): {
            choice.value: round(
                fmean(
                    row["left_out"]
                    for row in found
                    if row[name] == value and row["placement"] == choice.value
                ),
                2,
            )
            for choice in NodeChoice
        }
        for value in dict.fromkeys(row[name] for row in found)
    }


def key_of(row: Row) -> tuple[Any, ...]:
    """What a row shares with those of the other ways (see Combination.key)."""
    return (row["machines"], row["policy"], row["load"])


def compare(asked: list[Combination], options: argparse.Namespace) -> list[Row]:
    """Return all rows, in the order of the combinations; those that the output has are not made again."""
    effort = options.effort if options.plans else 0
    made = {"seed": options.seed, "runs": options.runs, "effort": effort}
    known = rows_before(options.output, made) if options.output else {}
    missing = [one for one in asked if one.key not in known]
    work = partial(rows_of, runs=options.runs, seed=options.seed, effort=effort)
    for number, (one, rows) in enumerate(zip(missing, each(work, missing, options.workers), strict=True), 1):
        known[one.key] = rows
        if options.output:
            append(options.output, rows, made)
        if options.progress:
            print(f"{number} of {len(missing)}", file=sys.stderr, flush=True)
    return [row for one in asked for row in known[one.key]]


def each(
    work: Callable[[Combination], list[Row]], missing: list[Combination], workers: int
) -> Iterable[list[Row]]:
    """Yield the rows of each combination, in their order."""
    if workers == 1:
        yield from map(work, missing)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(work, missing)


def append(output: Path, rows: list[Row], made: dict[str, Any]) -> None:
    """Write a combination's rows in one line, so that a broken end loses no more than it."""
    with output.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**made, "rows": rows}) + "\n")


def rows_before(output: Path, made: dict[str, Any]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows that an earlier run left, if it was asked for the same; a broken last line goes."""
    if not output.exists():
        return {}
    text = output.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        output.write_text(whole, encoding="utf-8")
    found: dict[tuple[Any, ...], list[Row]] = {}
    for line in whole.splitlines():
        told = json.loads(line)
        if any(told[name] != value for name, value in made.items()):
            message = f"{output} is of another seed, number of runs, --plans or --effort: name a new file"
            raise SystemExit(message)
        found[key_of(told["rows"][0])] = told["rows"]
    return found


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95], metavar="LOAD"
    )
    parser.add_argument("--runs", type=int, default=3, help="random runs of each combination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--machines", nargs="+", choices=list(MACHINES), default=list(MACHINES))
    parser.add_argument(
        "--sample",
        type=int,
        choices=range(1, len(POLICIES) + 1),
        default=len(POLICIES),
        metavar="N",
        help=f"only N of the {len(POLICIES)} policies with each kind of machines at each load, in turn",
    )
    parser.add_argument(
        "--recording", type=Path, nargs="+", metavar="DIRECTORY", help="recorded pods, instead of drawn ones"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write rows as they come, and go on where FILE ends"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the rows; needs matplotlib")
    parser.add_argument("--plans", action="store_true", help="plan for the pods that wait at the end")
    parser.add_argument(
        "--effort",
        type=int,
        default=20_000,
        metavar="STEPS",
        help="steps of each search for a plan (default: 20000); on large machines they take a second",
    )
    parser.add_argument("--progress", action="store_true", help="say on stderr what is done")
    parser.add_argument("--json", action="store_true", help="print JSON, with a row per combination")
    options = parser.parse_args(arguments)
    if options.recording:
        options.runs = 1  # each would be the same
    return options


def main() -> int:
    """Run, print."""
    options = options_of()
    try:
        if options.recording:
            asked = recorded(options.recording)
        else:
            asked = drawn(options.machines, options.loads, options.sample)
        found = compare(asked, options)
    except (BadDump, ValueError) as error:
        raise SystemExit(str(error)) from error
    told = {"seed": options.seed, "runs": options.runs, "summary": summary(found)}
    if options.plot:
        from numazones_benchmarks.placement_plot import draw  # noqa: PLC0415 - slow to import

        loads = ", ".join(f"{load:.0%}" for load in dict.fromkeys(one.load for one in asked if one.load))
        of = "recorded arrivals" if options.recording else f"loads {loads}; {options.runs} runs each"
        draw(found, options.plot, f"{len(asked)} combinations; {of}, seed {options.seed}")
    if options.json:
        by = {f"left_out_by_{name}": left_out_by(name, found) for name in ("load", "machines", "policy")}
        print(json.dumps({**told, **by, "rows": found}, indent=2))
    else:
        print_table(told["summary"])
    return 0


def print_table(told: dict[str, dict[str, float | None]]) -> None:
    """Print a row per way of choosing."""
    columns = list(next(iter(told.values())))
    print("PLACEMENT ", *(name.replace("_", " ") for name in columns), sep="  ")
    for name, values in told.items():
        cells = ("-" if value is None else f"{value:g}" for value in values.values())
        print(
            f"{name:10}",
            *(f"{cell:>{len(column)}}" for cell, column in zip(cells, columns, strict=True)),
            sep="  ",
        )


if __name__ == "__main__":
    sys.exit(main())
