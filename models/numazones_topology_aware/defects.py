"""Defects and surprises of the released policy, named where they decided about a container.

Each entry of the table looks at one created (or rejected) container and says in a sentence what its
owner would not expect; most come from ``docs/reference/topology-aware.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware.cpu_priority import Priority
from numazones_topology_aware.cpu_state import Grant
from numazones_topology_aware.events import Outcome
from numazones_topology_aware.memory_types import PRESERVE
from numazones_topology_aware.node import Known, Node
from numazones_topology_aware.pool_selection import Assessment
from numazones_topology_aware.pools import PoolKind
from numazones_topology_aware.ranking import CONTRADICTION, MEMORY_TO_BURST
from numazones_topology_aware.request import CPUType
from numazones_topology_aware.sandbox import DOMAIN, Scope

_FEWEST_TO_CHOOSE = 2


@dataclass(frozen=True, slots=True)
class _Case:
    """One container and what was decided about it."""

    outcome: Outcome
    node: Node
    known: Known
    assessment: Assessment
    grant: Grant | None

    def annotation(self, key: str) -> str | None:
        return self.known.sandbox.preference(key, self.known.spec.name)

    def flag(self, key: str) -> bool:
        return self.known.sandbox.flag(key, self.known.spec.name) or False


def found_in(outcome: Outcome) -> tuple[str, ...]:
    """Return the effects that a container's owner would not expect; empty if all is as documented."""
    known = outcome.node.containers.get(outcome.subject)
    if outcome.assessment is None or known is None:
        return ()
    node = outcome.node
    case = _Case(outcome, node, known, outcome.assessment, node.grants.get(outcome.subject))
    return tuple(sentence for check in _CHECKS if (sentence := check(case)))


def _unpinned(case: _Case) -> str:
    grant = case.grant
    if grant is None or not grant.follows_pool or not case.node.policy.config.pin_cpu:
        return ""
    if case.node.cpus.sharable[grant.pool]:
        return ""
    return (
        f"this container would get no CPU pinning: {case.node.pools[grant.pool].name} has no shared CPUs "
        "left, so no CPU set is sent and it may run anywhere, even on exclusive CPUs"
    )


def _shared_below_zero(case: _Case) -> str:
    error = case.outcome.error
    if error is None or error.code != "cpu-negative" or case.assessment.pool is None:
        return ""
    kind = case.assessment.request.cpu.kind
    pinned = (
        ""
        if kind is CPUType.NORMAL
        else f", though this one is for {kind.value} CPUs and would use none of it"
    )
    return (
        f"the shared capacity of {case.assessment.pool.name} is below zero (a container without a CPU "
        f"request counts 1m), and then the policy rejects every container there{pinned}"
    )


def _lost_prefer_isolated(case: _Case) -> str:
    cpu = case.assessment.request.cpu
    sandbox, name = case.known.sandbox, case.known.spec.name
    prefer = sandbox.scoped(f"prefer-isolated-cpus.{DOMAIN}", name)
    if (
        prefer is None
        or prefer[1] is not Scope.BARE
        or sandbox.scoped(f"require-isolated-cpus.{DOMAIN}", name) is not None
        or sandbox.qos is not QOSClass.GUARANTEED
        or cpu.kind is not CPUType.NORMAL
        or sandbox.flag("prefer-isolated-cpus", name) is cpu.isolate
    ):
        return ""
    return (
        "the bare annotation prefer-isolated-cpus is ignored without require-isolated-cpus; write "
        f"prefer-isolated-cpus.{DOMAIN}/pod"
    )


def _contradictory(case: _Case) -> str:
    ranking = case.assessment.ranking
    if ranking is None or not ranking.contradictory or ranking.reasons[:1] != (CONTRADICTION,):
        return ""
    best, next_best = (case.node.pools[pool].name for pool in ranking.order[:_FEWEST_TO_CHOOSE])
    return (
        f"the policy's comparison ranks {best} and {next_best} each above the other, so the sorting "
        "algorithm decides which one is taken"
    )


def _memory_to_root(case: _Case) -> str:
    request, ranking = case.assessment.request, case.assessment.ranking
    if ranking is None or request.memory_limit or request.memory_request == 0:
        return ""
    if ranking.reasons[:1] != (MEMORY_TO_BURST,):
        return ""
    cause = "a memory request without a memory limit"
    if case.known.wants == case.known.requirements and case.known.cgroup.oom_score:
        cause += " (the plugin estimates one from the OOM score where there is none)"
    return (
        f"{cause} sends the container to the pool with the most memory, which usually spans several "
        "NUMA nodes"
    )


def _limit_beyond_every_pool(case: _Case) -> str:
    ranking, cpu = case.assessment.ranking, case.assessment.request.cpu
    if ranking is None or case.known.sandbox.qos is not QOSClass.BURSTABLE or not cpu.limit:
        return ""
    if max(score.free for score in ranking.scores) >= cpu.limit:
        return ""
    return (
        f"the CPU limit of {cpu.limit}m is more than any pool has free; pools then count as equally good "
        "for it, and a small one may be taken"
    )


def _reserved_overflow(case: _Case) -> str:
    if case.grant is None or case.assessment.request.cpu.kind is not CPUType.RESERVED:
        return ""
    if case.grant.kind is CPUType.RESERVED:
        return ""
    return (
        "the reserved CPUs have too little left, so the container runs on the shared CPUs of the whole node"
    )


def _reserved_exclusive(case: _Case) -> str:
    overlap = 0 if case.grant is None else case.grant.exclusive & case.node.policy.reserved
    if not overlap:
        return ""
    return f"the reserved CPU {cpuset.format(overlap)} is also isolated, so the policy assigns it exclusively"


def _doubly_exclusive(case: _Case) -> str:
    if case.grant is None or not case.grant.exclusive:
        return ""
    for name, other in case.node.grants.items():
        if name != case.grant.container and (overlap := other.exclusive & case.grant.exclusive):
            return (
                f"CPUs {cpuset.format(overlap)} are already exclusive to container {name}: a NUMA node "
                "that lies in several dies is a pool in each of them, and these pools do not see each "
                "other's containers"
            )
    return ""


def _lowest_weight(case: _Case) -> str:
    if case.grant is None or case.grant.kind is not CPUType.PRESERVE or not case.node.policy.config.pin_cpu:
        return ""
    return "cpu.preserve keeps the CPU set, but the CPU weight is set to the minimum, whatever was requested"


def _weight_of_the_rest(case: _Case) -> str:
    if case.grant is None or not (case.grant.exclusive and case.grant.shared):
        return ""
    return (
        f"the CPU weight counts the shared part only ({case.grant.shared}m), not the "
        f"exclusive CPUs {cpuset.format(case.grant.exclusive)}; a resize of memory alone would shrink the "
        "container to that part"
    )


def _strict_unchecked(case: _Case) -> str:
    if case.grant is None or not case.known.hints or not case.flag("strict.topologyhints"):
        return ""
    if not case.grant.portion and not case.grant.exclusive:
        return "strict topology hints are not checked for a container without a CPU request"
    near = 0
    for hint in case.known.hints.values():
        near |= cpuset.parse(hint.numas)
    if near and case.grant.zone & ~near:
        nodes = cpuset.format(case.grant.zone & ~near)
        return f"strict topology hints are not enforced for memory: it may come from NUMA nodes {nodes}"
    return ""


def _endless_cold_start(case: _Case) -> str:
    if case.grant is None or not case.grant.cold_start:
        return ""
    return "the released daemon misses the end of a cold start: the container stays on PMEM permanently"


def _hinted_die(case: _Case) -> str:
    pool = case.assessment.pool
    ranked = case.assessment.ranking
    if ranked is None or pool is None or pool.kind is not PoolKind.DIE or not case.known.hints:
        return ""
    return (
        "topology hints are scored against the whole package of a die, so they do not distinguish between "
        "its dies"
    )


def _priority_high(case: _Case) -> str:
    cpu, topology = case.assessment.request.cpu, case.node.policy.topology
    if (
        not cpu.full
        or cpu.priority is not Priority.HIGH
        or topology.hybrid
        or case.assessment.ranking is None
    ):
        return ""
    if not case.node.policy.cpus.classes[Priority.HIGH]:
        return ""
    return "when a pool is chosen, priority high counts every CPU, not only the fast ones"


def _memory_in_the_root(case: _Case) -> str:
    if case.assessment.request.memory_types != PRESERVE or case.grant is None:
        return ""
    return "memory.preserve keeps the memory pinning; the amount is charged to the whole node"


_CHECKS: tuple[Callable[[_Case], str], ...] = (
    _unpinned,
    _shared_below_zero,
    _lost_prefer_isolated,
    _contradictory,
    _memory_to_root,
    _limit_beyond_every_pool,
    _reserved_overflow,
    _reserved_exclusive,
    _doubly_exclusive,
    _lowest_weight,
    _weight_of_the_rest,
    _strict_unchecked,
    _endless_cold_start,
    _hinted_die,
    _priority_high,
    _memory_in_the_root,
)
