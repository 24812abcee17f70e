"""``plan``: which pods to move so that waiting ones fit; the operator's planner, carrying out nothing."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.cluster import ClusterView, NotThere, read, source_options
from kubectl_numazones.reading.file_content import read_file
from kubectl_numazones.reading.files import has_pod_list
from kubectl_numazones.reading.names import OWNER_TYPES, POD_TYPES, complete_pods, joined
from kubectl_numazones.reading.parsed import SHAPE
from kubectl_numazones.reading.selection import check_names, selector_option
from kubectl_numazones.reading.source import Source
from numazones.api.meta import API_VERSION
from numazones.api.rebalance import RebalancePolicy
from numazones.apimachinery.documents import CONFIGURATION, UnreadableDocument, read_yaml
from numazones.apimachinery.label_selector import LabelSelector
from numazones.cluster.cluster import ClusterPod
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import Shape
from numazones.prediction import doubts
from numazones.rebalance.candidates import why_not
from numazones.rebalance.custom_resources import gain_of, goals_of, policy_of, tally
from numazones.rebalance.goals import Align, FitMore, Goal, Wanted, pending_goals
from numazones.rebalance.kept_pods import kept_pods
from numazones.rebalance.moves import Move
from numazones.rebalance.policy import Policy
from numazones.rebalance.whatif import PolicyReport, what_if
from numazones.wording import pluralize
from numazones_program.columns import Column

_DEFAULT_POLICY = {
    "apiVersion": "numazones.io/v1alpha1",
    "kind": "RebalancePolicy",
    "metadata": {"name": "default"},
    "spec": {},
}
_SCRIPT_HEAD = """#!/bin/sh
# Evictions, in order; wait until each replacement is running before you run the next one.
set -eu"""
_EPILOG = """
\b
Examples:
  kubectl numazones plan                          for every waiting pod, in all namespaces
  kubectl numazones plan deploy/web -n team       for these pods; -l app=web selects by label
  kubectl numazones plan --shape cpu=16           make room for pods of a shape
  kubectl numazones plan --policy policy.yaml     with its goals, limits and protections
  kubectl numazones plan -o script > moves.sh     as commands; read them before you run them
  kubectl numazones plan --why-not team/web-1     why this pod cannot be moved
"""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """``plan``: goals and plans."""

    items: Annotated[list[PolicyReport], "One for each goal."]
    doubts: Annotated[tuple[str, ...], "What is uncertain because of the kubelets' versions; usually empty."]


@click.command("plan", epilog=_EPILOG)
@click.argument("names", metavar="[POD|TYPE/NAME|TYPE NAME]...", nargs=-1, shell_complete=complete_pods)
@selector_option("pods")
@click.option(
    "--shape",
    "shapes",
    type=SHAPE,
    multiple=True,
    metavar="SHAPE",
    help="Make room for pods of this shape, as many as possible.",
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use the goals, limits and protections of this RebalancePolicy.",
)
@click.option(
    "--align",
    is_flag=True,
    help="Plan for running pods that are spread over NUMA nodes, not for waiting ones: for all or for those "
    "you name; each eviction aligns one pod.",
)
@click.option("--why-not", "movable", metavar="POD", help="Only explain why this pod cannot be moved.")
@click.option(
    "--effort",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Maximum number of steps in the search for a plan.",
)
@output_option("text", "script")
@source_options
def command(
    source: Source,
    *,
    names: tuple[str, ...],
    selector: LabelSelector | None,
    shapes: tuple[Shape, ...],
    policy_file: Path | None,
    align: bool,
    movable: str | None,
    effort: int,
    output: Output,
) -> int:
    """Plan the fewest, least disruptive evictions that let waiting pods fit, each on a single NUMA node.

    Each plan is verified by simulation. Nothing is evicted. The exit code is 0 if everything fits now or
    after the plans, 1 if something does not.
    """
    names = joined(names, (*OWNER_TYPES, *POD_TYPES))
    check_names(names, selector=selector)
    if shapes and (names or selector is not None):
        raise click.UsageError("--shape plans for future pods: do not name pods or use -l")
    seen = _read_with_pods(source)
    policy, named = _policy(policy_file, seen)
    if movable is not None:
        return _why_not(seen, policy, movable)
    goals: list[Goal] = [] if shapes or align else [*pending_goals(_waiting(seen, names, selector))]
    if not (names or shapes or selector or align):
        goals += named
    goals += [FitMore((Wanted.shape(str(shape), shape),)) for shape in shapes]
    goals += [Align(_running(seen, names, selector))] if align else []
    found = [(goal, what_if(goal, seen.situation, policy, effort=effort)) for goal in goals]
    uncertain = doubts.of_nodes(seen.situation.cluster.nodes.values())
    screen.warn_of(uncertain)
    if output.is_document:
        output.write(PlanDocument([item for _, item in found], uncertain))
    elif output.form == "script":
        screen.echo(_SCRIPT_HEAD)
        for goal, item in found:
            _script(goal, item)
    else:
        if not found:
            screen.echo("no pods are waiting; use --shape to make room for future pods")
        for goal, item in found:
            _print_plans(goal, item)
        if any("NodeState" in item.unmovable for _, item in found):
            _print_unknown_nodes(seen)
    return 0 if all(item.after > item.before or _is_reached(goal, item) for goal, item in found) else 1


def _read_with_pods(source: Source) -> ClusterView:
    seen = read(source)
    if source.files and next(seen.pods, None) is None and not has_pod_list(source.files):
        raise BadDump("the dump has no pods; include them: kubectl get nodes,pods,numazones -A -o json")
    return seen


def _waiting(seen: ClusterView, names: tuple[str, ...], selector: LabelSelector | None) -> list[ClusterPod]:
    """Return the waiting pods that are asked about; without names and labels all."""
    pending = seen.situation.cluster.pending
    if not names:
        return [pod for pod in pending.values() if selector is None or selector.matches(pod.labels)]
    found: dict[str, ClusterPod] = {}
    for name in names:
        waiting = {pod.uid: pod for pod in seen.named(name) if not pod.node and not pod.terminal}
        if not waiting:
            raise NotThere(
                f"{name} is not waiting for a node, so there is nothing to plan; see kubectl "
                f"numazones why {name}"
            )
        found |= waiting
    return list(found.values())


def _running(seen: ClusterView, names: tuple[str, ...], selector: LabelSelector | None) -> frozenset[str]:
    """Return the UIDs of the running pods that are asked about; none: all."""
    if not names and selector is None:
        return frozenset()
    pods = seen.pods if not names else (pod for name in names for pod in seen.named(name))
    found = frozenset(
        pod.uid
        for pod in pods
        if pod.node and not pod.terminal and (selector is None or selector.matches(pod.labels))
    )
    if not found:
        raise NotThere("none of these pods is running, so there is nothing to align")
    return found


def _is_reached(goal: Goal, item: PolicyReport) -> bool:
    return goal.aim is not None and item.after >= goal.aim


def _policy(path: Path | None, seen: ClusterView) -> tuple[Policy, list[Goal]]:
    """Return the settings and the goals of a policy; without a file, of one that sets nothing."""
    body = _DEFAULT_POLICY if path is None else _policy_body(path)
    try:
        spec = RebalancePolicy.from_api(body, strict=True).spec
        return policy_of(spec, seen.priority_classes), [*goals_of(spec.goals)]
    except NumazonesError as error:
        raise BadDump(f"{path}: {error}") from error


def _policy_body(path: Path) -> dict[str, Any]:
    try:
        body = read_yaml(read_file(path, CONFIGURATION.size), CONFIGURATION)
    except UnreadableDocument as error:
        raise BadDump(f"{path}: {error}") from error
    if not isinstance(body, dict):
        raise BadDump(f"{path} contains no RebalancePolicy")
    for field, cure in (("apiVersion", API_VERSION), ("kind", RebalancePolicy.RESOURCE.kind)):
        if field not in body:
            raise BadDump(f"{path}: {field} is missing; use {cure}")
    metadata = body.get("metadata")
    if not metadata or (isinstance(metadata, dict) and not (metadata.keys() & {"name", "generateName"})):
        raise BadDump(f"{path}: metadata.name is missing; give the policy a name")
    return body


_MOVES: tuple[Column[tuple[int, Move]], ...] = (
    Column("PLAN", lambda row: str(row[0])),
    Column("POD", lambda row: row[1].pod.full_name),
    Column("FROM", lambda row: str(row[1].source)),
    Column("TO", lambda row: str(row[1].target)),
    Column("WHY", lambda row: row[1].why),
)


def _print_plans(goal: Goal, item: PolicyReport) -> None:
    means = pluralize(item.evictions, "eviction") if item.plans else ""
    if len(item.plans) > 1:
        means = f"{len(item.plans)} plans with {means}"
    screen.say(gain_of(item.goal, item.before, item.after, means))
    rows = [(number, move) for number, made in enumerate(item.plans, 1) for move in made.moves]
    if rows:
        screen.print_table(_MOVES, rows)
    if not _is_reached(goal, item):
        screen.say(f"  {'no more plans: ' if item.plans else ''}{item.reason}")
        for line in kept_pods(item.unmovable):
            screen.say(f"  {line}")


def _print_unknown_nodes(seen: ClusterView) -> None:
    """Say why pods stay on nodes whose state is not known, for the first of them."""
    unknown = [node.unknown for _, node in sorted(seen.situation.cluster.nodes.items()) if node.unknown]
    if unknown:
        screen.say(
            f"the state of {pluralize(len(unknown), 'node')} is unknown, for example: {unknown[0].message}"
        )


def _script(goal: Goal, item: PolicyReport) -> None:
    screen.echo(f"# {item.goal}: {tally(goal, item.before)} now, {tally(goal, item.after)} afterwards")
    for made in item.plans:
        for move in made.moves:
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": move.pod.name, "namespace": move.pod.namespace},
                "deleteOptions": {"preconditions": {"uid": move.pod.uid}},
            }
            path = f"/api/v1/namespaces/{move.pod.namespace}/pods/{move.pod.name}/eviction"
            screen.echo(f"# to {move.node}{' (its replacement must run there)' if move.affinity else ''}")
            screen.echo(
                f"echo {shlex.quote(json.dumps(body))} | kubectl create --raw {shlex.quote(path)} -f -"
            )


def _why_not(seen: ClusterView, policy: Policy, name: str) -> int:
    pod = seen.named(name)[0]
    if not pod.node:
        raise NotThere(f"pod {pod.full_name} has no node, so there is nothing to move")
    found = why_not(pod, seen.situation, policy)
    for objection in found:
        screen.say(f"{objection.rule}: {objection.message}")
    if not found:
        screen.echo("nothing prevents moving it")
    return 1 if found else 0
