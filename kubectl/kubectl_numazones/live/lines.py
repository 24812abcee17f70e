"""The lines of the lists, and what each opens, for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubectl_numazones.live.board import Board, Planned
from kubectl_numazones.live.events import EventCells, event_cells, object_of
from kubectl_numazones.plans.decisions import MOVES, PendingPlan
from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.drawing import Drawing
from kubectl_numazones.printing.zone_figures import ZoneFigures, share
from kubectl_numazones.reading.kinds import NeededKind
from kubectl_numazones.stuck import stuck_pod as stuck
from kubectl_numazones.stuck.outlooks import Outlooks
from kubectl_numazones.stuck.stuck_pods import StuckPods
from numazones.alignment.pod_alignment import PodAlignment, by_name
from numazones.api.rebalance import ENDED, PlanPhase
from numazones.apimachinery.quantity import format_rounded
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE
from numazones.rebalance.custom_resources import tally_of
from numazones.rebalance.kept_pods import kept_pods
from numazones.rebalance.moves import Move as PlannedMove
from numazones.rebalance.whatif import PolicyReport
from numazones.wording import pluralize
from numazones_program.columns import Cell, Column, cells, shown

_MAX_PODS = 5
"""Of so many pods of an owner events are shown."""
_VERDICTS = {ADMISSIBLE: "green", INADMISSIBLE: "red"}
_IN_VAIN = ENDED - {PlanPhase.SUCCEEDED}
"""Phases of plans that came to nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a list: what is shown, what it is found by, and what it opens."""

    key: str
    cells: tuple[Cell, ...]
    details: Callable[[], RenderableType]
    group: str = ""
    """What it has in common with others."""
    groups: str = ""
    """Of a line that stands for all of a group: the group."""
    about: tuple[str, str, tuple[str, ...]] = ("", "", ())
    """Kind, namespace and names of the objects whose events belong to it."""
    plan: str = ""
    """Name of the recommendation that can be approved or rejected here."""
    slow: bool = False
    """Whether to work its details out takes a while."""

    @property
    def words(self) -> str:
        """Return the filter text."""
        return " ".join(str(cell) for cell in self.cells).lower()


def forbidden(kinds: Sequence[NeededKind], width: int) -> str:
    """Say which kinds must not be read and what follows, in so many columns; empty if all may be read."""
    if not kinds:
        return ""
    follows = ", ".join(dict.fromkeys(kind.without for kind in kinds))
    names = [kind.kind for kind in kinds]
    fewer = (", ".join(names[:most]) + f" +{len(names) - most}" for most in range(len(names) - 1, 0, -1))
    told = (f"cannot list {some}: {follows}" for some in (", ".join(names), *fewer))
    return next((line for line in told if len(line) <= width), f"cannot list {len(names)} kinds: {follows}")


class _ZoneRow(NamedTuple):
    """Row for a NUMA node, or for several."""

    node: str | Text
    numa: str | Text
    policy: str = ""
    cpus: str | Text = ""
    free_cpus: str | Text = ""
    memory: str | Text = ""
    free_memory: str | Text = ""
    devices: str | Text = ""

    def cells(self, *, roomy: bool) -> tuple[Cell, ...]:
        """Return the cells of its line."""
        return cells(shown(ZONE_COLUMNS, wide=roomy), self)


ZONE_COLUMNS: tuple[Column[_ZoneRow], ...] = (
    Column("NODE", lambda row: row.node),
    Column("NUMA", lambda row: row.numa),
    Column("POLICY", lambda row: row.policy, wide=True),
    Column("CPU", lambda row: row.cpus),
    Column("FREE", lambda row: row.free_cpus),
    Column("MEMORY", lambda row: row.memory),
    Column("FREE", lambda row: row.free_memory),
    Column("DEVICES", lambda row: row.devices),
)
"""With room, the wide ones are shown, too."""


def _figure(figure: object, style: str = "") -> Text:
    return Text(str(figure), justify="right", style=style)


def _use(
    pairs: Iterable[tuple[int, int] | None], text: Callable[[int], str]
) -> tuple[str | Text, str | Text]:
    """Draw how much is in use, and say the largest free part, which is what a pod can have on one zone."""
    known = [pair for pair in pairs if pair is not None]
    if not known:
        return "-", "-"
    used = (sum(pair[0] for pair in known), sum(pair[1] for pair in known))
    bar = screen.bar(share(used))
    bar.append(f" {text(used[1])}", "dim")
    return bar, _figure(text(max(pair[1] - pair[0] for pair in known)), "bold")


def zone_line(zone: ZoneFigures, board: Board, *, roomy: bool) -> Line:
    """Return the line of a zone; it opens the whole node."""
    crossing = [one for one in board.misaligned.get(zone.node, ()) if zone.numa in one.numas]
    row = _ZoneRow(
        zone.node,
        _figure(zone.numa),
        zone.policy,
        *_use([zone.cpus], str),
        *_use([zone.memory], format_rounded),
        devices=_marked(zone.devices_text, _cpus_held(zone, board), crossing),
    )
    key = f"{zone.node} zone {zone.numa}"
    return Line(key, row.cells(roomy=roomy), lambda: node_details(zone.node, board), group=zone.node)


def _cpus_held(zone: ZoneFigures, board: Board) -> int:
    """CPUs of a zone that are held for pods on their way."""
    coming = (item for item in board.held.get(zone.node, ()) if zone.numa in item.numas)
    return sum(item.cpus // len(item.numas) for item in coming)


def _marked(devices: str, cpus: int, misaligned: Sequence[PodAlignment]) -> str | Text:
    """Devices behind what is to be noticed: CPUs that are held, pods that are not aligned."""
    marks = [
        *([f"{pluralize(cpus, 'CPU')} held"] if cpus else []),
        *([f"{len(misaligned)} not aligned"] if misaligned else []),
    ]
    if not marks:
        return devices
    return Text.assemble((", ".join(marks), "yellow"), f" {devices}" if devices else "")


def node_line(zones: Sequence[ZoneFigures], board: Board, *, roomy: bool) -> Line:
    """Return the line of all zones of a node, where there are many nodes."""
    first = zones[0]
    held = sum(_cpus_held(zone, board) for zone in zones)
    row = _ZoneRow(
        first.node,
        _figure(f"0-{len(zones) - 1}" if len(zones) > 1 else "0"),
        first.policy,
        *_use([zone.cpus for zone in zones], str),
        *_use([zone.memory for zone in zones], format_rounded),
        devices=_marked("", held, board.misaligned.get(first.node, ())),
    )
    return Line(
        first.node, row.cells(roomy=roomy), lambda: node_details(first.node, board), groups=first.node
    )


def _unknown_row(node: str | Text, why: str) -> _ZoneRow:
    return _ZoneRow(node, "?", cpus=Text("unknown", "red"), devices=Text(why, "red"))


def unknown_line(node: str, why: str, *, roomy: bool) -> Line:
    """Return the line of a node without zones that can be used."""
    row = _unknown_row(node, why)
    about = ("Node", "", (node,))
    details = Text(f"The state of {node} is unknown: {why}")
    return Line(node, row.cells(roomy=roomy), lambda: details, group=unknown_group(node, why), about=about)


def unknown_group(node: str, why: str) -> str:
    """Return what nodes of unknown state have in common: the reason, without the node's own name."""
    return why.replace(node, "NODE")


def unknown_group_line(why: str, nodes: Sequence[str], *, roomy: bool) -> Line:
    """Return the line of all nodes that are unknown for one reason."""
    named = Text(pluralize(len(nodes), "node"), "red")
    row = _unknown_row(named, why)
    return Line(
        f"unknown {why}", row.cells(roomy=roomy), lambda: Text("\n".join((why, "", *nodes))), groups=why
    )


def node_details(name: str, board: Board) -> RenderableType:
    """Draw a node, who holds what there, and who is on the way."""
    node = board.seen.situation.cluster.nodes[name]
    occupancy = node.occupancy
    if occupancy is None:
        return Text(f"The state of {name} is unknown.")
    drawn = Text("\n").join(Drawing(name, occupancy, by_name(node), plain=False).lines())
    held = screen.details_table(answers.HOLDERS, answers.holders(node))
    coming = [Text(item.sentence, "yellow") for item in board.held.get(name, ())]
    return Group(drawn, Text(), held, *((Text(), *coming) if coming else ()))


class _StuckRow(NamedTuple):
    """Row for stuck pods."""

    name: str | Text
    waiting: int
    rejected: int
    since: str
    verdict: str
    why: str

    def cells(self, *, roomy: bool) -> tuple[Cell, ...]:
        """Return the cells of its line."""
        return cells(shown(STUCK_COLUMNS, wide=roomy), self)


STUCK_COLUMNS: tuple[Column[_StuckRow], ...] = (
    Column("POD OR OWNER", lambda row: row.name),
    Column("WAIT", lambda row: _figure(row.waiting)),
    Column("REJECTED", lambda row: _figure(row.rejected, "red" if row.rejected else "")),
    Column("SINCE", lambda row: row.since[5:16].replace("T", " "), wide=True),
    Column("VERDICT", lambda row: Text(row.verdict, _VERDICTS.get(row.verdict, "yellow"))),
    Column("WHY", lambda row: row.why),
)


def stuck_line(item: StuckPods, board: Board, *, roomy: bool) -> Line:
    """Return the line of an owner's stuck pods; it opens what ``why`` says."""
    row = _StuckRow(item.name, item.waiting, item.rejected, item.since, item.verdict, item.why)
    about = ("Pod", item.example.namespace, tuple(pod.name for pod in item.pods[:_MAX_PODS]))
    return Line(
        item.name,
        row.cells(roomy=roomy),
        lambda: _stuck_details(item, board),
        group=f"{item.verdict}: {item.reason}",
        about=about,
        plan=next(iter(board.seen.recommendations(item.pods)), ""),
        slow=True,
    )


def stuck_group_line(group: str, items: Sequence[StuckPods], *, roomy: bool) -> Line:
    """Return the line of all owners whose pods are stuck for one reason."""
    first = items[0]
    row = _StuckRow(
        Text(pluralize(len(items), "owner"), "bold"),
        sum(item.waiting for item in items),
        sum(item.rejected for item in items),
        min(item.since for item in items),
        first.verdict,
        f"{first.reason}, such as {first.name}" if first.reason else f"such as {first.name}",
    )
    return Line(
        f"group {group}",
        row.cells(roomy=roomy),
        lambda: screen.details_table(_GROUPED, items),
        groups=group,
    )


_GROUPED: tuple[Column[StuckPods], ...] = (
    Column("POD OR OWNER", lambda item: item.name),
    Column("WHY", lambda item: item.why),
)


def _stuck_details(item: StuckPods, board: Board) -> RenderableType:
    outlooks, pod = Outlooks(board.seen), item.example
    said = map(_sentence, stuck.explanation_lines(item.pods, pod, item.prediction, outlooks))
    nodes = board.seen.situation.cluster.nodes
    groups = answers.node_groups(pod, nodes, item.prediction, outlooks.forecast(pod))
    return Group(*said, Text(), screen.details_table(answers.NODE_GROUPS, groups))


def _sentence(line: str) -> RenderableType:
    """A line of an explanation; what is too long for the screen goes on beneath its first word."""
    text = line.removeprefix("  - ")
    if text == line:
        return Text(line)
    item = Table.grid(padding=(0, 1, 0, 0))
    item.add_row("  -", Text(text))
    return item


class _PlanRow(NamedTuple):
    """Row for a plan."""

    goal: str
    now: str
    after: str
    moves: int
    phase: Text
    first: str


PLAN_COLUMNS: tuple[Column[_PlanRow], ...] = (
    Column("GOAL", lambda row: row.goal),
    Column("NOW", lambda row: _figure(row.now)),
    Column("AFTER", lambda row: _figure(row.after)),
    Column("MOVES", lambda row: _figure(row.moves)),
    Column("PHASE", lambda row: row.phase),
    Column("FIRST MOVE", lambda row: row.first),
)


def plan_line(item: Planned) -> Line:
    """Return the line of a plan or recommendation; it opens the moves."""
    report = item.report
    if report is None:
        return _recommendation_line(item.goal, item.recommendation)
    first = next((move for made in report.plans for move in made.moves), None)
    row = _PlanRow(
        item.goal,
        tally_of(item.goal, report.before),
        tally_of(item.goal, report.after),
        report.evictions,
        Text("not proposed", "cyan") if first else Text("none", "dim"),
        report.reason if first is None else f"{first.pod.full_name} → {first.target}",
    )
    return Line(item.goal, cells(PLAN_COLUMNS, row), lambda: _plan_details(item.goal, report))


_PLANNED: tuple[Column[tuple[int, PlannedMove]], ...] = (
    Column("PLAN", lambda row: str(row[0])),
    Column("POD", lambda row: row[1].pod.full_name),
    Column("FROM", lambda row: str(row[1].source)),
    Column("TO", lambda row: str(row[1].target)),
    Column("WHY", lambda row: row[1].why),
)


def _plan_details(goal: str, report: PolicyReport) -> RenderableType:
    moves = [(number, move) for number, made in enumerate(report.plans, 1) for move in made.moves]
    parts: list[RenderableType] = [
        Text(f"{goal}: {tally_of(goal, report.before)} now, {tally_of(goal, report.after)} afterwards"),
        Text(report.reason, "italic"),
        Text(),
    ]
    if moves:
        parts += [screen.details_table(_PLANNED, moves), Text()]
    parts += [Text(line, "dim") for line in kept_pods(report.unmovable)]
    return Group(*parts)


def _recommendation_line(goal: str, body: Any) -> Line:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    gain, phase = spec.get("gain") or {}, str(status.get("phase") or "new")
    moves = list(_moves(spec))
    name = str(body["metadata"]["name"])
    row = _PlanRow(
        goal,
        _tally(goal, gain.get("before", "?")),
        _tally(goal, gain.get("after", "?")),
        len(moves),
        Text(phase, "dim" if phase in _IN_VAIN else "green"),
        f"{moves[0].pod} → {moves[0].target}" if moves else "",
    )
    about = ("RebalanceRecommendation", "", (name,))
    return Line(name, cells(PLAN_COLUMNS, row), lambda: plan_description(body), about=about, plan=name)


def _tally(goal: str, count: Any) -> str:
    return tally_of(goal, count) if isinstance(count, int) else str(count)


def plan_description(body: Any) -> RenderableType:
    """Describe a recommendation: what it promises, how far it is, and move by move."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    gain, goal = spec.get("gain") or {}, str(spec.get("goal") or "")
    before, after = (_tally(goal, gain.get(key, "?")) for key in ("before", "after"))
    progress = {
        (one.get("pod") or {}).get("name"): " ".join(
            str(one[key]) for key in ("phase", "node", "message") if one.get(key)
        )
        for one in status.get("progress") or ()
    }
    facts = [
        ("goal", str(spec.get("goal") or "")),
        ("gain", f"{before} now, {after} after"),
        ("policy", str(spec.get("policy") or "")),
        ("phase", f"{status.get('phase') or 'new'}: {status.get('message') or ''}"),
        ("decision", ", ".join(field for field in ("approved", "rejected") if spec.get(field)) or "not yet"),
        ("expires", str(spec.get("expires") or "")),
    ]
    columns = (*_MOVES, Column("PROGRESS", lambda move: progress.get(move.pod.partition("/")[2], "")))
    return Group(
        Text(f"RebalanceRecommendation {body['metadata']['name']}: {spec.get('goal') or ''}", "bold"),
        screen.details_table(_FACTS, facts[1:]),
        screen.details_table(columns, _moves(spec)),
    )


def moves_of(plan: PendingPlan) -> RenderableType:
    """Show what a plan promises and moves."""
    return Group(Text(plan.promise, "bold"), Text(), screen.details_table(MOVES, plan.spec.moves))


EVENT_COLUMNS: tuple[Column[tuple[EventCells, str]], ...] = (
    Column("LAST SEEN", lambda row: row[0].moment),
    Column("TYPE", lambda row: Text(row[0].kind, "yellow" if row[0].kind == "Warning" else "")),
    Column("REASON", lambda row: row[0].reason),
    Column("OBJECT", lambda row: row[1]),
    Column("MESSAGE", lambda row: " ".join(row[0].message.split())),
)


def event_line(event: Any, number: int) -> Line:
    """Return the line of an event; it opens the whole message."""
    moment, kind, reason, message = said = event_cells(event)
    about = object_of(event)
    return Line(
        f"{number} {reason} {about}",
        cells(EVENT_COLUMNS, (said, about)),
        lambda: Text(f"{moment}  {kind}  {reason}\n{about}\n\n{message}"),
    )


class _Move(NamedTuple):
    """A move of a recommendation."""

    pod: str
    source: str
    target: str
    why: str


_MOVES: tuple[Column[_Move], ...] = (
    Column("POD", lambda move: move.pod),
    Column("FROM", lambda move: move.source),
    Column("TO", lambda move: move.target),
    Column("WHY", lambda move: move.why),
)
_FACTS: tuple[Column[tuple[str, str]], ...] = (
    Column("", lambda fact: fact[0]),
    Column("", lambda fact: fact[1]),
)


def _moves(spec: Any) -> Iterator[_Move]:
    for move in spec.get("moves") or ():
        pod, source, target = (move.get(part) or {} for part in ("pod", "source", "target"))
        name = f"{pod.get('namespace')}/{pod.get('name')}"
        yield _Move(name, str(source.get("node")), str(target.get("node")), str(move.get("why") or ""))
