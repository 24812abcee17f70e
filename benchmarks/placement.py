"""Which way of choosing nodes leaves out the fewest pods: over loads, machines, policies and scopes.

Pods that come and go arrive at nodes, and each way of choosing places the same arrivals
(``numazones.whatif``); every third pod has two containers, so that scopes differ. ``default`` is
kube-scheduler, ``nrt`` its plugin NodeResourceTopologyMatch; others ask what each kubelet would decide. Told
per way, of 100 arrivals: those that were left out, by size, and those of them that a kubelet rejected; of 100
free CPUs those that no further pod of 14 CPUs can use; of 100 admitted pods those across NUMA nodes; and with
``--plans``, for the largest pod left out of each combination's first run, how many evictions a plan needs
that lets it in: 0 if it fits by now, one more than are tried if no plan was found.
Seeds are fixed: the same command prints the same figures, however many processes make them.

    .venv/bin/python benchmarks/placement.py --workers 2

With ``--output FILE`` each combination's rows are written as soon as they are known, as JSON lines; the same
command later goes on with what the file lacks. ``--plot FILE.svg`` draws the rows.

With ``--recording DIRECTORY`` the pods of a recorded history arrive instead, in their order, at the recorded
nodes under each policy, and no node is named.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

from kubectl_numazones import recording
from numazones.cluster import Cluster, ClusterNode, ClusterPod, Owner
from numazones.fragmentation import Shape
from numazones.node_choice import NodeChoice
from numazones.prediction import Kind as PodKind
from numazones.prediction import Standing, ask
from numazones.rebalance.candidates import Situation
from numazones.rebalance.filter import Surroundings
from numazones.rebalance.goals import FitMore, Wanted
from numazones.rebalance.limits import Limits
from numazones.rebalance.planner import plan
from numazones.rebalance.policy import Policy
from numazones.resources import CPU, MEMORY
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate, allocatable_memory, start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.trial import UNSCHEDULABLE, Played, play
from numazones.whatif.workload import Event, Group, Leaving, Recipe

CHURN, AWAY = 200, 8
MEAN_CPUS = 7.5
"""Of a pod with 1 to 14 CPUs."""
SHAPE = Shape.parse("cpu=14,memory=2Gi")
SIZES = {"small": range(1, 5), "medium": range(5, 10), "large": range(10, 1 << 10)}
"""By CPUs."""
MAX_EVICTIONS = 4
HUGE_PAGES = 32
_MILLI = 1000
_DEVICE_SHARE = 4
"""Every so many pods one asks for a device or huge pages, where there are any."""
_WITH_TWO_CONTAINERS = 3
POLICIES = {
    f"{policy}, {scope}": {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    for policy in ("single-numa-node", "restricted", "best-effort", "none")
    for scope in ("container", "pod")
    if (policy, scope) != ("none", "pod")  # without a policy there is no scope
}
WITHIN = 2.0
"""Of 100 arrivals: as good as the best."""


@dataclass(frozen=True)
class Machines:
    """Machines that belong together, and what arrives at them."""

    forms: tuple[tuple[str, int], ...]
    """(machine, how many)."""
    cpus: int
    """Of all machines, that pods may have."""
    scarce: str = ""
    """What every fourth pod asks for beside."""

    def templates(self) -> Iterator[NodeTemplate]:
        """Yield the nodes."""
        number = 0
        for text, count in self.forms:
            machine, huge, _ = text.partition(" huge")
            template = node_template(machine, name="node")
            if huge:
                template = with_huge_pages(template)
            for _ in range(count):
                yield replace(template, node=replace(template.node, name=f"node-{number:02}"))
                number += 1

    def workload(self, load: float) -> Recipe:
        """Pods that ask for a share of the CPUs while some are away."""
        number = round(load * self.cpus / MEAN_CPUS) + AWAY
        some = number // _DEVICE_SHARE if self.scarce else 0
        groups = [Group.parse(f"{number - some}xcpu=1-14,memory=2Gi")]
        if some:
            groups.append(Group.parse(f"{some}xcpu=1-14,memory=2Gi,{self.scarce}"))
        return Recipe(tuple(groups), mixed=True, churn=CHURN, away=AWAY)


def with_huge_pages(template: NodeTemplate) -> NodeTemplate:
    """Return the node with pages of 1Gi on each NUMA node."""
    nodes = tuple(one._replace(hugepages=((1 << 20, HUGE_PAGES),)) for one in template.machine.numa_nodes)
    machine = replace(template.machine, numa_nodes=nodes)
    amounts = {**template.node.allocatable, **allocatable_memory(machine, template.config)}
    return replace(template, machine=machine, node=replace(template.node, allocatable=amounts))


_TWO = "sockets=2,numa=2,cores=32,threads=1,memory=256Gi"
MACHINES = {
    "2 NUMA nodes": Machines(((_TWO, 10),), 310),
    "4 NUMA nodes (SNC2)": Machines((("sockets=2,numa=4,cores=64,threads=1,memory=512Gi", 5),), 315),
    "8 NUMA nodes": Machines((("sockets=2,numa=8,cores=128,threads=1,memory=512Gi", 3),), 381),
    "GPUs on one of 2 NUMA nodes": Machines(
        ((f"{_TWO},vendor.example/gpu@1=4", 10),), 310, "vendor.example/gpu=1"
    ),
    "GPUs on half of the machines": Machines(
        ((f"{_TWO},vendor.example/gpu=4", 5), (_TWO, 5)), 310, "vendor.example/gpu=1"
    ),
    "huge pages on half of the machines": Machines(
        ((f"{_TWO} huge", 5), (_TWO, 5)), 310, "hugepages-1Gi=4Gi"
    ),
}


def events_of(recipe: Recipe, random: RandomNumbers) -> list[Event]:
    """Return what happens in a run; every third pod has two containers, all have an owner."""
    return [
        event if isinstance(event, Leaving) else dressed(event, int(event.name.rpartition("-")[2]))
        for event in recipe.events(random)
    ]


def dressed(pod: ClusterPod, number: int) -> ClusterPod:
    """Return the pod as it arrives."""
    cpus = pod.requests[CPU] // _MILLI
    owned = replace(pod, owners=OWNERS)
    if cpus == 1 or number % _WITH_TWO_CONTAINERS:
        return owned
    parts = (cpus // 2, cpus - cpus // 2)
    bodies = []
    for part, name in zip(parts, ("first", "second"), strict=True):
        amounts = {CPU: str(part), MEMORY: "1Gi"}
        if name == "first":
            amounts |= {
                key: str(amount)
                for key, amount in pod.requests.items()
                if key not in {CPU, MEMORY} and amount
            }
        bodies.append({"name": name, "resources": {"requests": amounts, "limits": amounts}})
    body = {
        "metadata": {"name": pod.name, "namespace": "default", "uid": pod.uid},
        "spec": {"containers": bodies},
    }
    return replace(ClusterPod.from_api(body), owners=OWNERS)


OWNERS = (Owner("ReplicaSet", "pods", "pods", controller=True),)


@dataclass(frozen=True)
class Combination:
    """Machines, a policy with its scope, and a load; of a recording, its directory."""

    machines: str
    policy: str
    load: float
    recording: Path | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What its rows share (see key_of)."""
        return (self.machines, self.policy, self.load)

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes, started."""
        if self.recording is None:
            templates: Iterable[NodeTemplate] = MACHINES[self.machines].templates()
        else:
            nodes, _ = recording.history(self.recording)
            templates = [NodeTemplate.of(node) for node in nodes]
        return list(start_nodes(one.with_settings(POLICIES[self.policy]) for one in templates))

    def events(self, seed: int, number: int) -> list[Event]:
        """Return what happens in a run."""
        if self.recording is None:
            return events_of(MACHINES[self.machines].workload(self.load), RandomNumbers(seed, number))
        _, events = recording.history(self.recording)
        return [one if isinstance(one, Leaving) else replace(one, node="", owners=OWNERS) for one in events]


def rows_of(combination: Combination, *, runs: int, seed: int, plans: bool) -> list[dict[str, Any]]:
    """Return the figures of every way of choosing."""
    nodes = combination.nodes()
    events = [combination.events(seed, number) for number in range(runs)]
    return [
        {
            "machines": combination.machines,
            "policy": combination.policy,
            "load": combination.load,
            "placement": choice.value,
            **figures([play(nodes, one, shape=SHAPE, choice=choice) for one in events], plans=plans),
        }
        for choice in NodeChoice
    ]


def figures(played: list[Played], *, plans: bool) -> dict[str, float | None]:
    """Mean figures of some runs."""
    outcomes = [one.outcome for one in played]
    sizes = {
        f"left_out_{size}": fmean(
            100 * sum(cpus_of(pod) in within for pod in one.left_out) / one.outcome.arrived for one in played
        )
        for size, within in SIZES.items()
    }
    return {
        "left_out": fmean(100 * (one.arrived - one.admitted) / one.arrived for one in outcomes),
        **sizes,
        "rejected_by_kubelets": fmean(
            100 * sum(number for reason, number in one.rejected if reason != UNSCHEDULABLE) / one.arrived
            for one in outcomes
        ),
        "stranded": fmean(100 * (one.stranded or 0) / max(one.free, 1) for one in outcomes),
        "across": fmean(100 * one.crossing / max(one.admitted, 1) for one in outcomes),
        "evictions": evictions(played[0]) if plans else None,
    }


def cpus_of(pod: ClusterPod) -> int:
    """Whole CPUs that a pod asks for."""
    return max(pod.requests.get(CPU, 0) // _MILLI, 1)


def evictions(played: Played) -> float | None:
    """Evictions that let in the largest pod left out: 0 if it fits now, one more than allowed without a plan.

    None: none was left out.
    """
    if not played.left_out:
        return None
    pod = max(played.left_out, key=lambda one: (cpus_of(one), one.name))
    kind = PodKind.of(pod)
    if kind is None or any(ask(kind, node).standing is Standing.ADMITS for node in played.nodes):
        return 0.0
    situation = Situation(
        Cluster({node.name: node for node in played.nodes}),
        Surroundings(now=datetime(2026, 1, 1, tzinfo=UTC), replicas={"pods": 1000}),
    )
    goal = FitMore((Wanted("left out", pod, count=1),))
    found = plan(goal, situation, Policy(limits=Limits(total=MAX_EVICTIONS)), expired=lambda: False)
    return float(MAX_EVICTIONS + 1 if found.plan is None else len(found.plan.moves))


def combinations(options: argparse.Namespace) -> list[Combination]:
    """Return what is to be compared."""
    if options.recording is not None:
        return [Combination("recorded", policy, 0.0, options.recording) for policy in POLICIES]
    return [
        Combination(name, policy, load)
        for name in options.machines
        for policy in POLICIES
        for load in options.loads
    ]


MEANS = (
    "left_out",
    *(f"left_out_{size}" for size in SIZES),
    "rejected_by_kubelets",
    "stranded",
    "across",
    "evictions",
)


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Per way: means over everything, and how far behind the best way it is at worst."""
    best: dict[tuple[Any, ...], float] = {}
    for row in found:
        best[key_of(row)] = min(best.get(key_of(row), 100.0), row["left_out"])
    told: dict[str, dict[str, float | None]] = {}
    for choice in NodeChoice:
        mine = [row for row in found if row["placement"] == choice.value]
        behind = [row["left_out"] - best[key_of(row)] for row in mine]
        told[choice.value] = {name: mean(row[name] for row in mine) for name in MEANS} | {
            "behind_the_best_at_worst": round(max(behind), 2),
            "within_2_of_the_best": round(fmean(one <= WITHIN for one in behind), 3),
        }
    return told


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row shares with those of the other ways."""
    return (row["machines"], row["policy"], row["load"])


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is known."""
    known = [value for value in values if value is not None]
    return round(fmean(known), 2) if known else None


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all rows, in the order of the combinations; those that the output has are not made again."""
    asked = combinations(options)
    runs = 1 if options.recording else options.runs
    made = {"seed": options.seed, "runs": runs, "plans": options.plans}
    known = rows_before(options.output, made) if options.output else {}
    missing = [one for one in asked if one.key not in known]
    work = partial(rows_of, runs=runs, seed=options.seed, plans=options.plans)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for number, (one, rows) in enumerate(zip(missing, pool.imap(work, missing), strict=True), start=1):
            known[one.key] = rows
            if options.output:
                append(options.output, rows, made)
            if options.progress:
                print(f"{number} of {len(missing)}", file=sys.stderr, flush=True)
    return [row for one in asked for row in known[one.key]]


def append(output: Path, rows: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """Write a combination's rows in one line, so that a broken end loses no more than it."""
    with output.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**made, "rows": rows}) + "\n")


def rows_before(output: Path, made: dict[str, Any]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the rows that an earlier run left, if it was asked for the same; a broken last line goes."""
    if not output.exists():
        return {}
    text = output.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        output.write_text(whole, encoding="utf-8")
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in whole.splitlines():
        told = json.loads(line)
        if any(told[name] != value for name, value in made.items()):
            message = f"{output} is of another seed, number of runs, or use of --plans: name a new file"
            raise SystemExit(message)
        found[key_of(told["rows"][0])] = told["rows"]
    return found


def draw(found: list[dict[str, Any]], file: Path, made: str) -> None:
    """Draw how many pods each way leaves out on each kind of machine; the same rows give the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415 - slow to import, in each process
    from matplotlib.figure import Figure  # noqa: PLC0415

    machines = list(dict.fromkeys(row["machines"] for row in found))
    width = 0.8 / len(NodeChoice)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "numazones", "font.size": 9}):
        figure = Figure(figsize=(9, 4.2), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for number, (choice, colour) in enumerate(zip(NodeChoice, COLOURS, strict=True)):
            heights = [
                fmean(
                    row["left_out"]
                    for row in found
                    if (row["machines"], row["placement"]) == (name, choice.value)
                )
                for name in machines
            ]
            places = [place + (number - (len(NodeChoice) - 1) / 2) * width for place in range(len(machines))]
            axes.bar(places, heights, width, color=colour, label=choice.value)
        axes.set_xticks(range(len(machines)), [fill(name, 16) for name in machines])
        axes.set_xlabel("machines")
        axes.set_ylabel("pods left out (% of arrivals)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(title="placement", ncols=len(NodeChoice), loc="upper center", frameon=False)
        axes.margins(y=0.25)
        axes.set_title(f"Pods left out by each way of choosing nodes\n{made}", fontsize=10)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


COLOURS = ("#bbbbbb", "#ccbb44", "#66ccee", "#228833", "#4477aa", "#ee6677", "#aa3377")
"""Of the ways; of Paul Tol, told apart by colour-blind eyes too."""


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95], metavar="LOAD"
    )
    parser.add_argument("--runs", type=int, default=3, help="random runs of each combination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--recording", type=Path, help="a recorded history, instead of drawn pods")
    parser.add_argument("--machines", nargs="+", choices=list(MACHINES), default=list(MACHINES))
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write rows as they come, and go on where FILE ends"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the rows; needs matplotlib")
    parser.add_argument("--plans", action="store_true", help="count evictions, which takes ten times as long")
    parser.add_argument("--progress", action="store_true", help="say on stderr what is done")
    parser.add_argument("--json", action="store_true", help="print JSON, with a row per combination")
    options = parser.parse_args()
    found = compare(options)
    told = {"seed": options.seed, "runs": options.runs, "summary": summary(found)}
    if options.plot:
        loads = ", ".join(f"{load:.0%}" for load in dict.fromkeys(row["load"] for row in found))
        of = "recorded arrivals" if options.recording else f"loads {loads}; runs {options.runs}"
        draw(found, options.plot, f"mean over {len(POLICIES)} policies and scopes; {of}, seed {options.seed}")
    if options.json:
        print(json.dumps({**told, "rows": found}, indent=2))
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
