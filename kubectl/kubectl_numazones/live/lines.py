"""The lines of the lists, and what each opens, for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubectl_numazones.live.board import Board, Planned
from kubectl_numazones.live.events import event_cells, object_of
from kubectl_numazones.plan_decisions import Plan
from kubectl_numazones.printing import answers, screen
from kubectl_numazones.printing.drawing import Drawing
from kubectl_numazones.printing.zone_figures import Zone, share
from kubectl_numazones.reading.kinds import Kind
from kubectl_numazones.stuck import stuck_pod as stuck
from kubectl_numazones.stuck.stuck_pods import Stuck
from numazones.alignment.pod_alignment import PodAlignment, by_name
from numazones.api.rebalance import ENDED, PlanPhase
from numazones.apimachinery.quantity import format_rounded
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE
from numazones.rebalance.custom_resources import tally_of
from numazones.rebalance.whatif import Report
from numazones.wording import pluralize

_MAX_PODS = 5
"""Of so many pods of an owner events are shown."""
EVENT_COLUMNS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
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
    crossing = [one for one in board.misaligned.get(zone.node, ()) if zone.numa in one.numas]
    cells.append(_marked(zone.devices_text, _cpus_held(zone, board), crossing))
    key = f"{zone.node} zone {zone.numa}"
    return Line(key, tuple(cells), lambda: node_details(zone.node, board), group=zone.node)


def _cpus_held(zone: Zone, board: Board) -> int:
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


def node_line(zones: Sequence[Zone], board: Board, *, roomy: bool) -> Line:
    """Return the line of all zones of a node, where there are many nodes."""
    first = zones[0]
    cells: list[str | Text] = [
        first.node,
        Text(f"0-{len(zones) - 1}" if len(zones) > 1 else "0", justify="right"),
    ]
    if roomy:
        cells.append(first.policy)
    for pairs, figure in (
        ([zone.cpus for zone in zones], str),
        ([zone.memory for zone in zones], format_rounded),
    ):
        known = [pair for pair in pairs if pair is not None]
        if not known:
            cells += ["-", "-"]
            continue
        used = (sum(pair[0] for pair in known), sum(pair[1] for pair in known))
        bar = screen.bar(share(used))
        bar.append(f" {figure(used[1])}", "dim")
        # The largest part is what a pod can have on one zone.
        cells += [bar, Text(figure(max(pair[1] - pair[0] for pair in known)), justify="right", style="bold")]
    held = sum(_cpus_held(zone, board) for zone in zones)
    cells.append(_marked("", held, board.misaligned.get(first.node, ())))
    return Line(first.node, tuple(cells), lambda: node_details(first.node, board), groups=first.node)


def unknown_line(node: str, why: str, *, roomy: bool) -> Line:
    """Return the line of a node without zones that can be used."""
    cells = (node, "?", *(("",) if roomy else ()), Text("unknown", "red"), "", "", "", Text(why, "red"))
    about = ("Node", "", (node,))
    details = Text(f"The state of {node} is unknown: {why}")
    return Line(node, cells, lambda: details, group=unknown_group(node, why), about=about)


def unknown_group(node: str, why: str) -> str:
    """What nodes of unknown state have in common: the reason, but for the node's own name."""
    return why.replace(node, "NODE")


def unknown_group_line(why: str, nodes: Sequence[str], *, roomy: bool) -> Line:
    """Return the line of all nodes that are unknown for one reason."""
    named = Text(pluralize(len(nodes), "node"), "red")
    cells = (named, "?", *(("",) if roomy else ()), Text("unknown", "red"), "", "", "", Text(why, "red"))
    return Line(f"unknown {why}", cells, lambda: Text("\n".join((why, "", *nodes))), groups=why)


def node_details(name: str, board: Board) -> RenderableType:
    """Draw a node, who holds what there, and who is on the way."""
    node = board.seen.situation.cluster.nodes[name]
    occupancy = node.occupancy
    if occupancy is None:
        return Text(f"The state of {name} is unknown.")
    drawn = Text("\n").join(Drawing(name, occupancy, by_name(node), plain=False).lines())
    held = _table(answers.HOLDER_COLUMNS, answers.holders(node))
    coming = [Text(item.sentence, "yellow") for item in board.held.get(name, ())]
    return Group(drawn, Text(), held, *((Text(), *coming) if coming else ()))


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
    about = ("Pod", item.example.namespace, tuple(pod.name for pod in item.pods[:_MAX_PODS]))
    return Line(
        item.name,
        cells,
        lambda: _stuck_details(item, board),
        group=f"{verdict}: {item.reason}",
        about=about,
        plan=next(iter(board.seen.recommendations(item.pods)), ""),
        slow=True,
    )


def stuck_group_line(group: str, items: Sequence[Stuck], *, roomy: bool) -> Line:
    """Return the line of all owners whose pods are stuck for one reason."""
    first = items[0]
    waiting, rejected = (sum(item.waiting for item in items), sum(item.rejected for item in items))
    since = min(item.since for item in items)
    cells: tuple[str | Text, ...] = (
        Text(pluralize(len(items), "owner"), "bold"),
        Text(str(waiting), justify="right"),
        Text(str(rejected), justify="right", style="red" if rejected else ""),
        *((since[5:16].replace("T", " "),) if roomy else ()),
        Text(first.verdict, _VERDICTS.get(first.verdict, "yellow")),
        f"{first.reason}, such as {first.name}" if first.reason else f"such as {first.name}",
    )

    def details() -> RenderableType:
        return _table(("POD OR OWNER", "WHY"), ((item.name, item.why) for item in items))

    return Line(f"group {group}", cells, details, groups=group)


def _stuck_details(item: Stuck, board: Board) -> RenderableType:
    said = map(_sentence, stuck.explanation_lines(item.pods, item.example, item.prediction, board.seen))
    nodes, pod = board.seen.situation.cluster.nodes, item.example
    groups = answers.node_groups(pod, nodes, item.prediction, answers.forecast_of(pod, nodes))
    rows = ((str(count), *said) for count, *said in groups)
    return Group(*said, Text(), _table(("NODES", "NEAREST", "VERDICT", "WHY"), rows))


def _sentence(line: str) -> RenderableType:
    """A line of an explanation; what is too long for the screen goes on beneath its first word."""
    text = line.removeprefix("  - ")
    if text == line:
        return Text(line)
    item = Table.grid(padding=(0, 1, 0, 0))
    item.add_row("  -", Text(text))
    return item


def plan_line(item: Planned) -> Line:
    """Return the line of a plan or recommendation; it opens the moves."""
    report = item.report
    if report is None:
        return _recommendation_line(item.goal, item.recommendation)
    first = next((move for made in report.plans for move in made.moves), None)
    cells: tuple[str | Text, ...] = (
        item.goal,
        *(
            Text(figure, justify="right")
            for figure in (
                tally_of(item.goal, report.before),
                tally_of(item.goal, report.after),
                str(report.evictions),
            )
        ),
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
        Text(f"{goal}: {tally_of(goal, report.before)} now, {tally_of(goal, report.after)} afterwards"),
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
    figures = (_tally(goal, gain.get("before", "?")), _tally(goal, gain.get("after", "?")), len(moves))
    cells: tuple[str | Text, ...] = (
        goal,
        *(Text(str(figure), justify="right") for figure in figures),
        Text(phase, "dim" if phase in _IN_VAIN else "green"),
        f"{moves[0][0]} → {moves[0][2]}" if moves else "",
    )
    about = ("RebalanceRecommendation", "", (name,))
    return Line(name, cells, lambda: plan_description(body), about=about, plan=name)


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
        ("decided", ", ".join(field for field in ("approved", "rejected") if spec.get(field)) or "not yet"),
        ("expires", str(spec.get("expires") or "")),
    ]
    rows = ((*move, progress.get(move[0].partition("/")[2], "")) for move in _moves(spec))
    return Group(
        Text(f"RebalanceRecommendation {body['metadata']['name']}: {spec.get('goal') or ''}", "bold"),
        _table(("", ""), facts[1:]),
        _table(("POD", "FROM", "TO", "WHY", "PROGRESS"), rows),
    )


def moves_of(plan: Plan) -> RenderableType:
    """Show what a plan promises and moves."""
    return Group(Text(plan.promise, "bold"), Text(), _table(("POD", "FROM", "TO", "WHY"), plan.rows()))


def event_line(event: Any, number: int) -> Line:
    """Return the line of an event; it opens the whole message."""
    moment, kind, reason, message = event_cells(event)
    about = object_of(event)
    style = "yellow" if kind == "Warning" else ""
    cells = (moment, Text(kind, style), reason, about, " ".join(message.split()))
    return Line(
        f"{number} {reason} {about}",
        cells,
        lambda: Text(f"{moment}  {kind}  {reason}\n{about}\n\n{message}"),
    )


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
