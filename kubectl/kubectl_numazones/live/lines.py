"""The lines of the lists, and what each opens, for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubectl_numazones import answers, screen, stuck
from kubectl_numazones.drawing import Drawing
from kubectl_numazones.kinds import Kind
from kubectl_numazones.live.board import Board, Planned
from kubectl_numazones.stuck_pods import Stuck
from kubectl_numazones.zone_figures import Zone, share
from numazones.api.rebalance import ENDED, PlanPhase
from numazones.prediction import ADMISSIBLE, INADMISSIBLE
from numazones.quantity import format_rounded
from numazones.rebalance.whatif import Report
from numazones.wording import pluralize

PLAN_COLUMNS = ("GOAL", "NOW", "AFTER", "MOVES", "PHASE", "FIRST MOVE")
_VERDICTS = {ADMISSIBLE: "green", INADMISSIBLE: "red"}
_IN_VAIN = ENDED - {PlanPhase.SUCCEEDED}
"""Phases of plans that came to nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a list: what is shown, what it is found by, and what it opens."""

    key: str
    cells: tuple[str | Text, ...]
    details: Callable[[], RenderableType]

    @property
    def words(self) -> str:
        """What it is filtered by."""
        return " ".join(str(cell) for cell in self.cells).lower()


def forbidden(kinds: Sequence[Kind], width: int) -> str:
    """Say which kinds must not be read and what follows, in so many columns; empty if all may be read."""
    if not kinds:
        return ""
    follows = ", ".join(dict.fromkeys(kind.without for kind in kinds))
    names = [kind.kind for kind in kinds]
    fewer = (", ".join(names[:most]) + f" +{len(names) - most}" for most in range(len(names) - 1, 0, -1))
    told = (f"may not list {some}: {follows}" for some in (", ".join(names), *fewer))
    return next((line for line in told if len(line) <= width), f"may not list {len(names)} kinds: {follows}")


def zone_columns(*, roomy: bool) -> tuple[str, ...]:
    """Name the columns of zones; with room, their policies are among them."""
    return ("NODE", "NUMA", *(("POLICY",) if roomy else ()), "CPU", "FREE", "MEMORY", "FREE", "DEVICES")


def zone_line(zone: Zone, board: Board, *, roomy: bool) -> Line:
    """Return the line of a zone; it opens the whole node."""
    cells: list[str | Text] = [zone.node, Text(str(zone.numa), justify="right")]
    if roomy:
        cells.append(zone.policy)
    for used, figure in ((zone.cpus, str), (zone.memory, format_rounded)):
        if used is None:
            cells += ["-", "-"]
            continue
        bar = screen.bar(share(used))
        bar.append(f" {figure(used[1])}", "dim")
        cells += [bar, Text(figure(used[1] - used[0]), justify="right", style="bold")]
    cells.append(zone.devices_text)
    key = f"{zone.node} zone {zone.numa}"
    return Line(key, tuple(cells), lambda: _node_details(zone.node, board))


def unknown_line(node: str, why: str, *, roomy: bool) -> Line:
    """Return the line of a node without zones that can be used."""
    cells = (node, "?", *(("",) if roomy else ()), Text("unknown", "red"), "", "", "", Text(why, "red"))
    return Line(node, cells, lambda: Text(f"The state of {node} is unknown: {why}"))


def _node_details(name: str, board: Board) -> RenderableType:
    node = board.seen.situation.cluster.nodes[name]
    occupancy = node.occupancy
    if occupancy is None:
        return Text(f"The state of {name} is unknown.")
    drawn = Text("\n").join(Drawing(name, occupancy, plain=False).lines())
    return Group(drawn, Text(), _table(("NUMA", "POD", "CPUS", "MEMORY", "DEVICES"), answers.holders(node)))


def stuck_columns(*, roomy: bool) -> tuple[str, ...]:
    """Name the columns of stuck pods; with room, the time since when is among them."""
    return ("POD OR OWNER", "WAIT", "REJECTED", *(("SINCE",) if roomy else ()), "VERDICT", "WHY")


def stuck_line(item: Stuck, board: Board, *, roomy: bool) -> Line:
    """Return the line of an owner's stuck pods; it opens what ``why`` says."""
    verdict = item.verdict
    cells: tuple[str | Text, ...] = (
        item.name,
        Text(str(item.waiting), justify="right"),
        Text(str(item.rejected), justify="right", style="red" if item.rejected else ""),
        *((item.since[5:16].replace("T", " "),) if roomy else ()),
        Text(verdict, _VERDICTS.get(verdict, "yellow")),
        item.why,
    )
    return Line(item.name, cells, lambda: _stuck_details(item, board))


def _stuck_details(item: Stuck, board: Board) -> RenderableType:
    said = "\n".join(stuck.explanation_lines(item.pods, item.example, item.prediction, board.seen))
    nodes, pod = board.seen.situation.cluster.nodes, item.example
    groups = answers.node_groups(pod, nodes, item.prediction, answers.forecast_of(pod, nodes))
    rows = ((str(count), *said) for count, *said in groups)
    return Group(Text(said), Text(), _table(("NODES", "NEAREST", "VERDICT", "WHY"), rows))


def plan_line(item: Planned) -> Line:
    """Return the line of a plan or recommendation; it opens the moves."""
    report = item.report
    if report is None:
        return _recommendation_line(item.goal, item.recommendation)
    first = next((move for made in report.plans for move in made.moves), None)
    cells: tuple[str | Text, ...] = (
        item.goal,
        *(Text(str(figure), justify="right") for figure in (report.before, report.after, report.evictions)),
        Text("found here", "cyan") if first else Text("none", "dim"),
        report.reason if first is None else f"{first.pod.full_name} → {first.node}",
    )
    return Line(item.goal, cells, lambda: _plan_details(item.goal, report))


def _plan_details(goal: str, report: Report) -> RenderableType:
    moves = [
        (str(number), it.pod.full_name, it.pod.node, it.node, it.why)
        for number, made in enumerate(report.plans, 1)
        for it in made.moves
    ]
    parts: list[RenderableType] = [
        Text(f"{goal}: {report.before} now, {report.after} afterwards"),
        Text(report.reason, "italic"),
        Text(),
    ]
    if moves:
        parts += [_table(("PLAN", "POD", "FROM", "TO", "WHY"), moves), Text()]
    parts += [
        Text(f"{pluralize(count, 'pod')} {'stays' if count == 1 else 'stay'} because of rule {rule}", "dim")
        for rule, count in sorted(report.unmovable.items(), key=lambda entry: -entry[1])
    ]
    return Group(*parts)


def _recommendation_line(goal: str, body: Any) -> Line:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    gain, phase = spec.get("gain") or {}, str(status.get("phase") or "new")
    moves = list(_moves(spec))
    name = str(body["metadata"]["name"])
    figures = (gain.get("before", "?"), gain.get("after", "?"), len(moves))
    cells: tuple[str | Text, ...] = (
        goal,
        *(Text(str(figure), justify="right") for figure in figures),
        Text(phase, "dim" if phase in _IN_VAIN else "green"),
        f"{moves[0][0]} → {moves[0][2]}" if moves else "",
    )
    message = str(status.get("message") or "")

    def details() -> RenderableType:
        head = Text(f"RebalanceRecommendation {name}: {goal}\n{phase}: {message}\n")
        return Group(head, _table(("POD", "FROM", "TO", "WHY"), moves))

    return Line(name, cells, details)


def _moves(spec: Any) -> Iterator[tuple[str, str, str, str]]:
    for move in spec.get("moves") or ():
        pod, source, target = (move.get(part) or {} for part in ("pod", "source", "target"))
        name = f"{pod.get('namespace')}/{pod.get('name')}"
        yield name, str(source.get("node")), str(target.get("node")), str(move.get("why") or "")


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(screen.literal, row))
    return table
