"""Events of the vectors that no program follows: resizes, ends of cold starts, other configurations, exports.

The released daemon loses the end of a cold start, so that a cold start never ends. Of another configuration
all grants are re-instated verbatim; if one does not fit, all containers are placed anew, each in its old
pool. If that fails too, the configuration is rejected and the old one applied again, by the same
procedure. The copies of the grants forget what reserved containers hold: after any reconfiguration,
also a rejected one, these count nothing.
"""

from dataclasses import dataclass, replace

from numazones import cpuset
from numazones.kubelet.demand import QOSClass
from numazones_topology_aware import requirements
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.cpu_state import CPUState, Grant
from numazones_topology_aware.events import Change, Outcome
from numazones_topology_aware.memory import NoMemory
from numazones_topology_aware.memory_types import DRAM, HBM, PMEM
from numazones_topology_aware.node import ContainerUpdate, Known, Node
from numazones_topology_aware.pool_selection import is_idle
from numazones_topology_aware.rejection import Rejection, StartFailed
from numazones_topology_aware.request import CPUType
from numazones_topology_aware.sandbox import CGroup

_MILLI = 1000
_QOS_ORDER = (QOSClass.GUARANTEED, QOSClass.BURSTABLE, QOSClass.BEST_EFFORT)
_BY_TYPE = (("DRAM_MEMS", DRAM), ("PMEM_MEMS", PMEM), ("HBM_MEMS", HBM))


def resize(node: Node, container: str, update: CGroup) -> Outcome:
    """Change a running container's resources; amounts of 0 keep what was.

    A resize that fails costs the container its grant: the old one is removed first and not restored.

    Raises:
        UnmodelledFeature, PluginCrash: as ``create``.
    """
    known = node.containers.get(container)
    if known is None:
        return Outcome(node)
    change = Change(node, container)
    merged = known.cgroup.with_update(update)
    capacity = node.policy.topology.memory_capacity
    wants = requirements.estimate(merged, known.sandbox.qos, memory_capacity=capacity)
    if wants.adds_nothing_to(known.wants):
        _repeat(change, replace(known, resized=wants))
        return change.outcome()
    before = node.grants.get(container)
    known = replace(known, resized=wants)
    change.containers[container] = known
    change.remove(container)
    try:
        change.place(known, hinted_pool=None if before is None else node.pools[before.pool].name)
    except Rejection as rejection:
        return change.failure(rejection)
    return change.outcome()


def _repeat(change: Change, known: Known) -> None:
    """Answer an identical resize: every value that the container has is sent again."""
    name = known.spec.id
    change.containers[name] = known
    grant = change.books.grants.get(name)
    if grant is not None:
        change.books.exchange(replace(grant, idle=is_idle(known, grant.kind)))
    cgroup = known.cgroup
    change.tell(
        name,
        ContainerUpdate(
            cpus=change.before.cpus_of(name) or None,
            mems=known.mems or None,
            shares=cgroup.shares or None,
            quota=cgroup.quota or None,
            period=cgroup.period or None,
            memory_limit=cgroup.memory_limit or None,
        ),
    )


def finish_cold_start(node: Node, container: str) -> Outcome:
    """End a container's cold start: it may use DRAM, and memory near it, as well.

    The released daemon loses this event, so that a cold start never ends.
    """
    change = Change(node, container)
    grant = change.books.grants.get(container)
    if grant is None:
        return replace(
            change.outcome(), error=Rejection(f"container {container} holds nothing", code="no-grant")
        )
    memory = node.policy.memory
    types = memory.types_of(grant.zone) | DRAM
    try:
        zones, change.memory = memory.widen(node.memory, container, types)
    except NoMemory:
        return change.outcome()
    change.move_memory(zones)
    return change.outcome()


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """The answer to a new configuration."""

    outcome: Outcome
    """Its error says why the configuration was rejected."""
    revert_error: Rejection | None = None
    """The old configuration could not be restored either."""


def reconfigure(node: Node, config: Configuration) -> Reconfiguration:
    """Apply a configuration, or the old one again if it is rejected.

    Raises:
        UnmodelledFeature, PluginCrash: as placing a container.
    """
    outcome = _apply(node, config)
    if outcome.error is None:
        return Reconfiguration(outcome)
    reverted = _apply(outcome.node, node.policy.config)
    if reverted.error is not None:
        return Reconfiguration(replace(reverted, error=outcome.error), reverted.error)
    return Reconfiguration(replace(reverted, error=outcome.error))


def _apply(node: Node, config: Configuration) -> Outcome:
    frozen = {name: replace(known, cpus=node.cpus_of(name)) for name, known in node.containers.items()}
    try:
        policy = node.policy.with_configuration(config)
        copies = [_copy(grant, node, policy.tree.by_name) for grant in node.grants.values()]
    except StartFailed as error:
        return Outcome(node, error=Rejection(str(error), code="reconfigure"))
    empty = replace(node, policy=policy, cpus=CPUState.initial(policy.tree), containers=frozen, grants={})
    change = Change(empty, "")
    for copy in copies:
        change.memory = policy.memory.remove(change.memory, copy.container)
    if not all(_reinstate(change, copy) for copy in sorted(copies, key=_least_flexible)):
        pools = policy.tree.pools
        errors = _place_anew(change, {copy.container: pools[copy.pool].name for copy in copies})
        if errors:
            return Outcome(
                replace(node, memory=change.memory, containers=change.containers, pending=change.updates),
                error=errors[0],
            )
    change.followers = True
    return change.outcome()


def _copy(grant: Grant, node: Node, pools: dict[str, int]) -> Grant:
    """A grant as it is carried over: of the portion, only shared CPU is kept."""
    name = node.pools[grant.pool].name
    if name not in pools:
        raise StartFailed(f"pool {name} exists no more", code="reconfigure")
    return replace(grant, pool=pools[name], portion=grant.shared)


def _least_flexible(grant: Grant) -> tuple[int, bool, int]:
    """The order of re-instating, which is random in the plugin.

    With more granted than there is, some orders fail and others don't. Containers that take whole CPUs
    go first here and those that merely share go last, so that what may fail is predicted to fail.
    """
    return -grant.exclusive.bit_count(), grant.idle, -grant.portion


def _reinstate(change: Change, grant: Grant) -> bool:
    """Give a container what it had; False if it does not fit."""
    memory, state = change.policy.memory, change.books.state
    pool = change.policy.tree.pools[grant.pool]
    offer, change.memory = memory.offer(
        change.memory,
        owner=grant.container,
        qos=change.containers[grant.container].sandbox.qos,
        size=grant.memory,
        affinity=grant.zone,
        types=memory.types_of(grant.zone),
    )
    if offer is None:
        return False
    isolated = grant.exclusive & pool.isolated
    normal = grant.exclusive & ~isolated
    if isolated & ~state.isolated[pool.id] or normal & ~state.sharable[pool.id]:
        return False
    if grant.kind is CPUType.NORMAL and state.free(pool) < _MILLI * normal.bit_count() + grant.shared:
        return False
    change.books.withdraw(pool, grant.exclusive)
    change.books.account(pool, shared=grant.shared)
    change.memory = memory.commit(change.memory, grant.container, offer)
    change.move_memory(offer.moves)
    grant = replace(grant, zone=offer.zone)
    change.books.add(grant)
    change.apply(grant)
    return True


def _place_anew(change: Change, pools: dict[str, str]) -> list[Rejection]:
    """Place all containers (with their pools' names) again, the most important first; returns rejections."""
    ordered = sorted(pools, key=lambda name: _importance(change.containers[name]))
    for name in ordered:
        change.remove(name)
    errors = []
    for name in ordered:
        try:
            change.place(change.containers[name], hinted_pool=pools[name])
        except Rejection as rejection:
            errors.append(rejection)
    return errors


def _importance(known: Known) -> tuple[int | str, ...]:
    wants = known.requirements
    return (
        _QOS_ORDER.index(known.sandbox.qos),
        -(wants.memory_request or 0),
        -(wants.memory_limit or 0),
        -(wants.cpu_request or 0),
        -(wants.cpu_limit or 0),
        known.sandbox.name,
        known.spec.name,
    )


def exported_variables(node: Node, container: str) -> list[str]:
    """The variables that the plugin shows a container in a file of its own.

    Lines ``NAME="LIST"`` in alphabetical order; a container without a grant has none.
    """
    grant = node.grants.get(container)
    if grant is None:
        return []
    isolated = grant.exclusive & node.pools[grant.pool].isolated
    values = {
        "SHARED_CPUS": node.cpus.sharable[grant.pool] if grant.shared else 0,
        "ISOLATED_CPUS": isolated,
        "EXCLUSIVE_CPUS": grant.exclusive & ~isolated,
    }
    values |= {name: grant.zone & node.policy.memory.of_types(types) for name, types in _BY_TYPE}
    lines = [f'{name}="{cpuset.format(ids)}"' for name, ids in values.items() if ids]
    return sorted([*lines, f'ALL_MEMS="{cpuset.format(grant.zone)}"'])
