"""Contents of the page, as JSON documents: one flat map from key to document.

A report holds the whole map; the operator sends the parts of it that changed, ``null`` for those that are
gone. So both are shown by the same code, which knows nothing but such maps. Keys are KIND/NAME: ``cluster/``,
``machine/…`` (the hardware, once for all nodes that have the same), ``node/…``, ``use/…`` (what is measured
on a node), ``counts/`` (of stuck pods), ``waiting/…``, ``held/…``, ``plan/…``, ``table/…`` and ``accuracy/``.
What is about a zone follows the machine's order of zones.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from numazones import cpuset
from numazones.alignment.pod_alignment import of_node
from numazones.api.rebalance import (
    ENDED,
    RebalanceRecommendationSpec,
    RebalanceRecommendationStatus,
    RecommendedMove,
    RecommendedPlacement,
)
from numazones.apimachinery.answer import document as written
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.usage import Usage, ZoneUsage
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import CPU
from numazones.placement.fragmentation import Shape
from numazones.placement.occupancy import Holder, Occupancy
from numazones.prediction.room import FittingPods
from numazones.rebalance.custom_resources import tally_of
from numazones.rebalance.decisions import approval_problem
from numazones.rebalance.moves import Move, PlacedPod, PlanFound

Document = Mapping[str, Any]
Documents = dict[str, Document]

_MAX_MACHINES = 64
"""Number of machines whose documents are kept."""


def cluster_document(
    *,
    source: str,
    shapes: Sequence[Shape],
    generated: str = "",
    version: str = "",
    note: str = "",
    reading: bool = False,
    doubts: Iterable[str] = (),
) -> Documents:
    """Return the document that describes the page's source.

    Args:
        source: name of the cluster or dump.
        shapes: what ``fit`` of every node is about, in the same order.
        generated: when, RFC 3339; empty on a live page.
        version: of the program.
        note: what readers must know about the whole, such as what is missing and why.
        reading: whether the cluster is still being read, so that nothing follows from what is missing.
        doubts: what is not certain because of the kubelets' releases.
    """
    document = {
        "source": source,
        "shapes": [str(shape) for shape in shapes],
        "generated": generated,
        "version": version,
        "note": note,
        "reading": reading,
        "doubts": list(doubts),
    }
    return {"cluster/": document}


def node_documents(
    node: ClusterNode,
    shapes: Sequence[Shape],
    fitting: FittingPods | None = None,
) -> Documents:
    """A node and its machine."""
    fitting = fitting or FittingPods()
    document: dict[str, Any] = {"ready": node.ready, "cordoned": node.unschedulable}
    occupancy = node.occupancy
    if occupancy is None:
        unknown = node.unknown
        return {f"node/{node.name}": document | {"unknown": "" if unknown is None else unknown.message}}
    key, machine = _machine(occupancy)
    document |= {
        "machine": key,
        "settings": [list(item) for item in occupancy.settings],
        "exclusive": occupancy.exclusive,
        "approximate": node.approximate,
        "reserved": cpuset.format(occupancy.reserved),
        "zones": [
            {
                "id": zone.numa,
                "cpus": list(zone.cpus),
                "free": zone.free,
                "memory": [list(item) for item in zone.memory],
                "devices": [[use.resource, use.held, use.healthy] for use in zone.devices if use.healthy],
            }
            for zone in occupancy.zones
        ],
        "pods": [_holder(holder) for holder in occupancy.holders],
        **_alignment(node),
        "fit": [_fit(fitting, node, shape) for shape in shapes],
    }
    return {f"machine/{key}": machine, f"node/{node.name}": document}


def use_documents(node: ClusterNode, usage: Usage) -> Documents:
    """Return what is measured of a node's zones, or why that is unknown; nothing of a node without zones."""
    occupancy = node.occupancy
    if occupancy is None:
        return {}
    zones = [
        {"id": zone.numa, **_rounded(use.of_zone(zone.cpus[0]))}
        for zone in occupancy.zones
        if (use := usage.numas.get((node.name, zone.numa))) is not None
    ]
    unknown = usage.unknown.get(node.name, "" if zones else "no exporter has measured this node")
    return {f"use/{node.name}": {"zones": zones, "unknown": unknown}}


def _rounded(use: ZoneUsage) -> Document:
    """Return the figures in the precision that is shown, so that fewer of them change."""
    shares = {"used": use.used, "shared": use.shared, "reserved": use.reserved}
    digits = {"used": 1}
    return {
        **{name: None if one is None else round(one, digits.get(name, 2)) for name, one in shares.items()},
        "memory": use.memory,
    }


def _holder(holder: Holder) -> Document:
    return {
        "pod": holder.name,
        "cpus": cpuset.format(holder.cpus),
        "memory": [[kind, size, list(numas)] for kind, size, numas in holder.memory],
        "devices": [[held.resource, list(held.ids), list(held.numas)] for held in holder.devices],
    }


def _alignment(node: ClusterNode) -> Document:
    """Return how many pods are aligned (None: unknown), and those that are not, the worst first."""
    lying = of_node(node)
    if lying is None:
        return {"aligned": None, "misaligned": []}
    found = sorted((one for _, one in lying if not one.aligned), key=lambda one: one.badness, reverse=True)
    misaligned = [
        {
            "pod": one.name,
            "says": one.sentence,
            "badness": list(one.badness),
            "apart": cpuset.format(one.apart),
            "memory": list(one.memory_apart),
        }
        for one in found
    ]
    return {"aligned": len(lying) - len(found), "misaligned": misaligned}


def _fit(fitting: FittingPods, node: ClusterNode, shape: Shape) -> list[int]:
    """[free CPUs, those that further pods of the shape would take, how many such pods fit, 1: not known]."""
    found = fitting.count(node, shape)
    return [found.free, found.usable, found.fitting, int(bool(fitting.why_unknown(node, shape)))]


def machine_document(occupancy: Occupancy) -> Document:
    """Sockets → zones → uncore caches → cores → CPUs; zones without CPUs are in a socket of no id.

    A zone on several sockets has its memory and offline CPUs on the first; on the others, ``continued``
    names the first.
    """
    return _machine(occupancy)[1]


def _machine(occupancy: Occupancy) -> tuple[str, Document]:
    """A machine's digest and its document."""
    memory = tuple(occupancy.total_memory.items())
    offline = tuple(occupancy.offline.items())
    return _machine_of(occupancy.cpus, tuple(zone.numa for zone in occupancy.zones), memory, offline)


# A cluster has few models of machines, and each time a node changes its own is asked for.
@lru_cache(maxsize=_MAX_MACHINES)
def _machine_of(
    cpus: tuple[CPU, ...],
    numas: tuple[int, ...],
    memory: tuple[tuple[int, int], ...],
    offline: tuple[tuple[int, CPUSet], ...],
) -> tuple[str, Document]:
    """``memory`` and ``offline`` are by NUMA id."""
    whole = {
        numa: {
            "memory": dict(memory).get(numa, 0),
            **({"offline": list(cpuset.ids(hidden))} if (hidden := dict(offline).get(numa, 0)) else {}),
        }
        for numa in numas
    }
    first: dict[int, int] = {}
    for cpu in sorted(cpus, key=lambda cpu: cpu.socket):
        first.setdefault(cpu.numa, cpu.socket)
    sockets: dict[int, dict[int, dict[int | None, dict[int, list[int]]]]] = {}
    for cpu in cpus:
        caches = sockets.setdefault(cpu.socket, {}).setdefault(cpu.numa, {})
        caches.setdefault(cpu.uncore_cache, {}).setdefault(cpu.core, []).append(cpu.id)
    listed = [
        {
            "id": socket,
            "zones": [
                {
                    "id": numa,
                    **(whole[numa] if first[numa] == socket else {"memory": 0, "continued": first[numa]}),
                    "caches": [
                        {"id": cache, "cores": sorted(sorted(ids) for ids in cores.values())}
                        for cache, cores in sorted(caches.items(), key=lambda item: min(item[1].values()))
                    ],
                }
                for numa, caches in sorted(zones.items())
            ],
        }
        for socket, zones in sorted(sockets.items())
    ]
    with_cpus = {cpu.numa for cpu in cpus}
    bare = [{"id": numa, **whole[numa], "caches": []} for numa in numas if numa not in with_cpus]
    document = {"sockets": [*listed, *([{"id": None, "zones": bare}] if bare else [])]}
    return _digest(document), document


def _digest(document: Document) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Plans


def plan_document(goal: str, made: PlanFound, nodes: Mapping[str, ClusterNode], *, name: str) -> Documents:
    """A plan that was just made; ``nodes`` as they are before it."""
    pods = {move.pod.uid: move.pod for move in made.moves} | {one.pod.uid: one.pod for one in made.placements}
    document = {
        "goal": goal,
        "phase": "",
        "message": "",
        "counts": [tally_of(goal, made.before), tally_of(goal, made.after)],
        "minimal": made.minimal,
        **_steps(made, pods.get),
    }
    return {f"plan/{name}": document | {"zones": _zones_before(document, nodes.get)}}


def recommendation_document(
    name: str,
    spec: RebalanceRecommendationSpec,
    status: RebalanceRecommendationStatus,
    node: Callable[[str], ClusterNode | None],
    pod: Callable[[str], ClusterPod | None],
    *,
    mode: str | None,
    first: Document | None = None,
) -> Documents:
    """A RebalanceRecommendation.

    NUMA nodes are shown as they are before its moves; once it has begun or ended, they are no longer known.

    Args:
        name: its name.
        spec: its plan.
        status: how far it is.
        node: finds a node by name.
        pod: finds a pod by UID.
        mode: of its policy; None if that is gone or cannot be followed.
        first: the document as it was first made. Evictions change what the zones hold, and pods go; what the
            plan was made of is shown as it was then.
    """
    progress = {item.pod.uid: item.phase for item in status.progress}
    if first is not None:
        moves = zip(first["moves"], spec.moves, strict=True)
        return {
            f"plan/{name}": {
                **first,
                "phase": status.phase,
                "message": status.message,
                **_decision(spec, status, mode),
                "moves": [told | {"phase": progress.get(move.pod.uid, "")} for told, move in moves],
            }
        }
    document = {
        "goal": spec.goal,
        "policy": spec.policy,
        "phase": status.phase or "Proposed",
        "message": status.message,
        "counts": [tally_of(spec.goal, spec.gain.before), tally_of(spec.goal, spec.gain.after)],
        "minimal": spec.gain.minimal,
        "expires": spec.expires or "",
        **_decision(spec, status, mode),
        **_steps(spec, pod, progress),
    }
    begun = status.phase in ENDED or any(phase != "Pending" for phase in progress.values())
    return {f"plan/{name}": document | {"zones": [] if begun else _zones_before(document, node)}}


def _decision(
    spec: RebalanceRecommendationSpec, status: RebalanceRecommendationStatus, mode: str | None
) -> dict[str, Any]:
    """Return whether the plan was approved, and why an approval would have no effect; empty: it would."""
    return {"approved": spec.approved, "objection": approval_problem(spec, status, mode)}


def _steps(
    plan: PlanFound | RebalanceRecommendationSpec,
    pod: Callable[[str], ClusterPod | None],
    phases: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The moves and placements of a plan, and whether replacements come last."""

    def step(item: Move | RecommendedMove | PlacedPod | RecommendedPlacement) -> dict[str, Any]:
        there = pod(item.pod.uid)
        cpus = None if there is None else there.requests.get("cpu", 0) // 1000
        return {"pod": item.pod.full_name, "cpus": cpus}

    return {
        "moves": [
            {
                **step(move),
                "from": written(move.source),
                "to": written(move.target),
                "why": move.why,
                "phase": phases.get(move.pod.uid, ""),
            }
            for move in plan.moves
        ],
        "placements": [{**step(item), "to": written(item.target)} for item in plan.placements],
        "last": any(move.after_pending for move in plan.moves),
    }


def _zones_before(document: Document, node: Callable[[str], ClusterNode | None]) -> list[Document]:
    """The plan's zones as they are before it: what each has in CPUs, and whose they are."""
    places = [move[end] for move in document["moves"] for end in ("from", "to")]
    places += [placement["to"] for placement in document["placements"]]
    wanted: dict[str, set[int]] = {}
    for place in places:
        wanted.setdefault(place["node"], set()).update(place["numaIDs"])
    return [zone for name, numas in sorted(wanted.items()) for zone in _zones(name, node(name), numas)]


def _zones(name: str, node: ClusterNode | None, numas: set[int]) -> Iterator[Document]:
    occupancy = None if node is None else node.occupancy
    if occupancy is None:
        return
    masks = {numa: cpuset.of(cpu.id for cpu in occupancy.cpus if cpu.numa == numa) for numa in numas}
    for zone in occupancy.zones:
        mask = masks.get(zone.numa)
        if mask is None:
            continue
        held = [(holder.name, (holder.cpus & mask).bit_count()) for holder in occupancy.holders]
        yield {
            "node": name,
            "id": zone.numa,
            "cpus": zone.cpus[1],
            "pods": [[pod, count] for pod, count in held if count],
        }


# What else there is


def accuracy_document(counts: Mapping[str, int], *, note: str = "") -> Documents:
    """Return how many predictions were right, race, stale, model or unknown."""
    return {"accuracy/": {"counts": dict(counts), "note": note}}


def table_document(
    name: str, *, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = ""
) -> Documents:
    """A table of figures, such as a comparison of settings."""
    return {
        f"table/{name}": {
            "title": title,
            "columns": list(columns),
            "rows": [list(row) for row in rows],
            "note": note,
        }
    }
