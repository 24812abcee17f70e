"""Which way of choosing nodes leaves out the fewest pods: over loads, machines, policies and scopes.

Pods that come and go arrive at nodes, and each way of choosing places the same arrivals
(``numazones.whatif``). ``default`` is kube-scheduler, ``nrt`` its plugin NodeResourceTopologyMatch; others
ask what each kubelet would decide. Told per way, of 100 arrivals: those that were left out, and those of them
that a kubelet rejected; of 100 free CPUs those that no further pod of 14 CPUs can use; of 100 admitted pods
those across NUMA nodes. Seeds are fixed: the same command prints the same figures.

    .venv/bin/python benchmarks/placement.py --json
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from numazones.fragmentation import Shape
from numazones.node_choice import NodeChoice
from numazones.whatif.experiment import Experiment, Variant, make_runs
from numazones.whatif.machine_type import node_template
from numazones.whatif.trial import UNSCHEDULABLE, Outcome
from numazones.whatif.workload import Group, Recipe

CHURN, AWAY = 200, 8
MEAN_CPUS = 7.5
"""Of a pod with 1 to 14 CPUs."""
SHAPE = Shape.parse("cpu=14,memory=2Gi")
POLICIES = {
    "single-numa-node": {"topologyManagerPolicy": "single-numa-node"},
    "single-numa-node, pod": {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
    },
    "restricted": {"topologyManagerPolicy": "restricted"},
    "best-effort": {"topologyManagerPolicy": "best-effort"},
    "none": {"topologyManagerPolicy": "none"},
}


@dataclass(frozen=True)
class Kind:
    """Machines of a kind, and what arrives at them."""

    machine: str
    count: int
    cpus: int
    """Of all machines, that pods may have."""
    devices: bool = False
    """Whether every fourth pod asks for a GPU."""

    def workload(self, load: float) -> Recipe:
        """Pods that ask for a share of the CPUs while some are away."""
        number = round(load * self.cpus / MEAN_CPUS) + AWAY
        groups = [Group.parse(f"{number}xcpu=1-14,memory=2Gi")]
        if self.devices:
            groups = [
                Group.parse(f"{number - number // 4}xcpu=1-14,memory=2Gi"),
                Group.parse(f"{number // 4}xcpu=1-14,memory=2Gi,vendor.example/gpu=1"),
            ]
        return Recipe(tuple(groups), mixed=True, churn=CHURN, away=AWAY)


KINDS = {
    "2 NUMA nodes": Kind("sockets=2,numa=2,cores=32,threads=1,memory=256Gi", 10, 310),
    "4 NUMA nodes (SNC2)": Kind("sockets=2,numa=4,cores=64,threads=1,memory=512Gi", 5, 315),
    "8 NUMA nodes": Kind("sockets=2,numa=8,cores=128,threads=1,memory=512Gi", 3, 381),
    "2 NUMA nodes, GPUs on one": Kind(
        "sockets=2,numa=2,cores=32,threads=1,memory=256Gi,vendor.example/gpu@1=4", 10, 310, devices=True
    ),
}


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of every way, kind, policy and load."""
    for name, kind in KINDS.items():
        for policy, settings in POLICIES.items():
            template = node_template(kind.machine, name="node").with_settings(settings)
            nodes = tuple(
                replace(template, node=replace(template.node, name=f"node-{number:02}"))
                for number in range(kind.count)
            )
            variants = tuple(
                Variant((("placement", choice.value),), nodes, choice=choice) for choice in NodeChoice
            )
            for load in options.loads:
                experiment = Experiment(variants, kind.workload(load), seed=options.seed, shape=SHAPE)
                runs = make_runs(experiment, range(options.runs))
                for index, choice in enumerate(NodeChoice):
                    outcomes = [run[index] for run in runs]
                    yield {
                        "machines": name,
                        "policy": policy,
                        "load": load,
                        "placement": choice.value,
                        **figures(outcomes),
                    }
                    if options.progress:
                        print(name, policy, load, choice.value, file=sys.stderr)


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    """Mean figures of some runs."""
    return {
        "left_out": fmean(100 * (one.arrived - one.admitted) / one.arrived for one in outcomes),
        "rejected_by_kubelets": fmean(
            100 * sum(number for reason, number in one.rejected if reason != UNSCHEDULABLE) / one.arrived
            for one in outcomes
        ),
        "stranded": fmean(100 * (one.stranded or 0) / max(one.free, 1) for one in outcomes),
        "across": fmean(100 * one.crossing / max(one.admitted, 1) for one in outcomes),
    }


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Per way: means over everything, and how far behind the best way it is at worst."""
    best: dict[tuple[Any, ...], float] = {}
    for row in found:
        key = (row["machines"], row["policy"], row["load"])
        best[key] = min(best.get(key, 100.0), row["left_out"])
    told = {}
    for choice in NodeChoice:
        mine = [row for row in found if row["placement"] == choice.value]
        told[choice.value] = {
            name: round(fmean(row[name] for row in mine), 2)
            for name in ("left_out", "rejected_by_kubelets", "stranded", "across")
        } | {
            "behind_the_best_at_worst": round(
                max(row["left_out"] - best[row["machines"], row["policy"], row["load"]] for row in mine), 2
            ),
            "within_2_of_the_best": round(
                fmean(
                    row["left_out"] - best[row["machines"], row["policy"], row["load"]] <= 2.0 for row in mine
                ),
                3,
            ),
        }
    return told


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.7, 0.85, 0.95])
    parser.add_argument("--runs", type=int, default=5, help="random runs of each combination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--progress", action="store_true", help="say on stderr what is done")
    parser.add_argument("--json", action="store_true", help="print JSON, with a row per combination")
    options = parser.parse_args()
    found = list(rows(options))
    told = {"seed": options.seed, "runs": options.runs, "summary": summary(found)}
    if options.json:
        print(json.dumps({**told, "rows": found}, indent=2))
    else:
        for name, values in told["summary"].items():
            print(f"{name:10}", values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
