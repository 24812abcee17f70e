"""Explain why a pod's containers went where they went, in plain words with numbers."""

from dataclasses import dataclass
from itertools import islice, pairwise

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.cpuset import CPUSet
from numazones_topology_aware import defects, memory_types
from numazones_topology_aware.admission import Admission, ContainerAllocation
from numazones_topology_aware.events import Outcome
from numazones_topology_aware.node import Node
from numazones_topology_aware.request import CPUType, Request

# Comparisons of pools that a reader still wants to hear of, from the best on.
_MAX_LISTED = 3


@dataclass(frozen=True, slots=True)
class ContainerExplanation:
    """The reasons for one container."""

    container: str
    request: str
    """What the policy took the container to ask for; empty if it could not read that."""
    ranking: tuple[tuple[str, str], ...]
    """(pool, what puts it before the next one), best first; empty where pools are not ranked."""
    verdict: str
    """What it was given, or why it was rejected."""
    defects: tuple[str, ...]
    """Defects of the policy that decided, and what they mean for this container."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for one pod."""

    admitted: bool
    containers: tuple[ContainerExplanation, ...]
    others: tuple[str, ...]
    """What changes for other pods' containers, one sentence each."""

    def lines(self) -> tuple[str, ...]:
        """The whole story, one line per fact."""
        lines: list[str] = []
        for one in self.containers:
            owner = f"container {one.container}"
            if one.request:
                lines.append(f"{owner}: requests {one.request}")
            lines.extend(
                f"{owner}: {better} comes before {worse}: {reason}"
                for (better, reason), (worse, _) in islice(pairwise(one.ranking), _MAX_LISTED)
            )
            lines.append(f"{owner}: {one.verdict}")
            lines.extend(f"{owner}: {sentence}" for sentence in one.defects)
        return (*lines, *self.others)


def explain(admission: Admission) -> Explanation:
    """Explain the decisions about a pod."""
    return Explanation(
        admission.admitted,
        tuple(
            _container(name, outcome, admission.containers.get(name))
            for name, outcome in admission.outcomes.items()
        ),
        tuple(_others(admission)),
    )


def _container(name: str, outcome: Outcome, given: ContainerAllocation | None) -> ContainerExplanation:
    assessment = outcome.assessment
    request = "" if assessment is None else _request(assessment.request)
    ranking = None if assessment is None else assessment.ranking
    ranked: tuple[tuple[str, str], ...] = ()
    if ranking is not None:
        pools = outcome.node.pools
        ranked = tuple(
            (pools[pool].name, reason)
            for pool, reason in zip(ranking.order, (*ranking.reasons, ""), strict=True)
        )
    if given is not None:
        verdict = _allocation_text(outcome.node, given)
    else:
        verdict = f"rejected: {outcome.error.message}" if outcome.error is not None else "not created"
    return ContainerExplanation(name, request, ranked, verdict, defects.found_in(outcome))


def _request(request: Request) -> str:
    cpu = request.cpu
    parts = []
    if cpu.full:
        wish = ", isolated ones if possible" if cpu.isolate else ""
        parts.append(f"{cpu.full} exclusive CPU{'s' if cpu.full > 1 else ''}{wish}")
    if cpu.kind is CPUType.NORMAL:
        parts += [f"{cpu.fraction}m of shared CPUs"] if cpu.fraction or not cpu.full else []
    else:
        parts.append(f"{cpu.fraction}m of {cpu.kind.value} CPUs")
    memory = quantity.format_bytes(request.memory)
    parts.append(f"{memory} of memory ({memory_types.name(request.memory_types) or 'no type that exists'})")
    return ", ".join(parts)


def _allocation_text(node: Node, given: ContainerAllocation) -> str:
    parts = []
    if normal := given.exclusive & ~given.isolated:
        parts.append(f"exclusive CPUs {cpuset.format(normal)}")
    if given.isolated:
        parts.append(f"isolated CPUs {cpuset.format(given.isolated)}")
    if given.kind is CPUType.RESERVED:
        parts.append(f"the reserved CPUs {cpuset.format(node.policy.reserved)}")
    elif given.kind is CPUType.PRESERVE:
        parts.append("its current CPUs")
    elif given.shared or not given.exclusive:
        parts.append(f"{given.shared}m of the shared CPUs {_or_none(given.update.cpus, given.exclusive)}")
    parts.append(f"memory of NUMA nodes {cpuset.format(given.memory_nodes)}")
    return f"gets {', '.join(parts)} in {given.pool}"


def _or_none(cpus: CPUSet | None, without: CPUSet) -> str:
    return cpuset.format((cpus or 0) & ~without) or "(none are left)"


def _others(admission: Admission) -> list[str]:
    sentences = []
    before, after = admission.before, admission.node
    for name, update in sorted(admission.updates.items()):
        if name not in before.containers or name not in after.containers:
            continue
        owner = before.containers[name].full_name
        was, becomes = before.cpus_of(name), after.cpus_of(name)
        if update.cpus is not None and was != becomes:
            shown = cpuset.format(becomes) or "any CPU: no shared CPUs are left"
            sentences.append(f"{owner} moves from CPUs {cpuset.format(was)} to {shown}")
        if update.mems is not None and update.mems != before.containers[name].mems:
            nodes = cpuset.format(update.mems)
            sentences.append(
                f"{owner} may now use memory of NUMA nodes {nodes}, to make room for this container"
            )
    return sentences
