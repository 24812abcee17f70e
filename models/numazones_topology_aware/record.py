"""Record of a followed node, and the node read from it again.

The policy publishes what its pools have left. Who sits in which pool depends on what happened there and in
which order, so it is written down beside: per container its pool, exclusive CPUs and memory zone, by the age
of the claims of memory, and the zones in use or left behind in their order. All else comes from the pods when
the record is read: what containers ask for, and so how much they hold, as well as labels and annotations. So
a record can't say that a container holds what its pod does not ask for.

A record is never taken for more than a proposal: it may be older than the pods, so whoever reads it holds the
outcome against the published pools. A field that is not known here makes it unreadable: it may change what
the others mean.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from numazones import cpuset
from numazones.cpuset import CPUSet, InvalidCPUSet
from numazones.kubelet.pod import Pod
from numazones.placement import UnreadableNode
from numazones_topology_aware import memory, request
from numazones_topology_aware.admission import sandbox_of, spec_of
from numazones_topology_aware.cpu_state import Grant
from numazones_topology_aware.events import Change
from numazones_topology_aware.node import Known, Node
from numazones_topology_aware.pool_selection import is_idle
from numazones_topology_aware.pools import Pool
from numazones_topology_aware.rejection import Rejection
from numazones_topology_aware.request import CPUType

Record = Mapping[str, Any]

MAX_CONTAINERS = 2000
"""So many are written down, so that the record always fits into an API object; most nodes have below 250."""
_RECORD_FIELDS = frozenset({"pools", "memoryZones", "pods"})
_POD_FIELDS = frozenset({"uid", "containers"})
_HOLDING_FIELDS = frozenset({"pool", "cpus", "zone", "shared"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """One container of a record."""

    uid: str
    container: str
    pool: Pool | None
    """None: it was tried in vain, and holds nothing."""
    exclusive: CPUSet = 0
    zone: int = 0
    """Mask of NUMA nodes."""
    shared: bool = False
    """Whether it was to run on reserved CPUs, and runs on shared ones since too little was left of those."""


def record_of(node: Node) -> Record | None:
    """Return what of a node cannot be rebuilt from its pods, as JSON.

    Containers that hold something come first, by the age of their claims of memory, then what holds nothing.

    Returns:
        None: there are more than ``MAX_CONTAINERS``; or one has a cold start, of which the end cannot be
        seen, so that nobody could read the node.
    """
    if len(node.containers) > MAX_CONTAINERS or any(grant.cold_start for grant in node.grants.values()):
        return None
    holding = sorted(node.grants, key=lambda name: node.memory.claims[name].created)
    known = [node.containers[name] for name in holding]
    known += [one for name, one in node.containers.items() if name not in node.grants]
    seen = {one.sandbox.uid for one in known}
    pods = [
        {"uid": uid, "containers": [_container(node, one) for one in group]}
        for uid, group in groupby(known, key=lambda one: one.sandbox.uid)
    ]
    pods += [{"uid": uid, "containers": []} for uid in node.sandboxes if uid not in seen]
    return {
        "pools": [pool.name for pool in node.pools],
        "memoryZones": [cpuset.format(zone) for zone in node.memory.zones],
        "pods": pods,
    }


def _container(node: Node, known: Known) -> dict[str, Any]:
    name = known.spec.name
    found: dict[str, Any] = {"name": name}
    grant = node.grants.get(known.spec.id)
    if grant is None:
        return found
    found["pool"] = grant.pool
    if grant.exclusive:
        found["cpus"] = cpuset.format(grant.exclusive)
    found["zone"] = cpuset.format(grant.zone)
    if request.build(node.policy, known.sandbox, name, known.wants).cpu.kind is not grant.kind:
        found["shared"] = True
    return found


def node_from_record(fresh: Node, record: Record, pods: Iterable[Pod]) -> Node:
    """Return a node as its record says, without what is gone of it.

    Args:
        fresh: the node without pods.
        record: what ``record_of`` returned, or whatever stands in its place.
        pods: those that run on the node; one that the record does not know is not on the returned node yet.

    Raises:
        UnreadableNode: the record makes no sense, or none on this node, and where.
    """
    _check_fields(record, _RECORD_FIELDS, "it")
    names = [pool.name for pool in fresh.pools]
    if record.get("pools") != names:
        raise _unreadable(f"its pools are not those of the machine, {', '.join(names)}")
    present = {pod.uid: pod for pod in pods}
    entries = list(_entries(fresh, _items(record, "pods")))
    _check_holdings(entries)
    zones = _memory_zones(fresh, record, entries)
    left = [entry for entry in entries if entry.uid in present]
    if any(entry.pool is not None and entry.uid not in present for entry in entries):
        # Releasing any claim clears the zones that offers left behind.
        in_use = {entry.zone for entry in left if entry.pool is not None}
        zones = [zone for zone in zones if zone in in_use]
    recorded = {uid: present[uid] for uid in _uids(record) if uid in present}
    return _node(fresh, recorded, left, zones)


def _node(fresh: Node, pods: Mapping[str, Pod], entries: Sequence[_Entry], zones: Sequence[int]) -> Node:
    """A node with pods whose containers hold what the entries say, in their order."""
    sandboxes = {uid: sandbox_of(fresh, pod) for uid, pod in pods.items()}
    change = Change(replace(fresh, sandboxes=sandboxes), "")
    claims: list[tuple[str, memory.Claim]] = []
    for entry in entries:
        pod, sandbox = pods[entry.uid], sandboxes[entry.uid]
        container = next((one for one in pod.containers if one.name == entry.container), None)
        if container is None:
            raise _unreadable(f"pod {pod.name} has no container {entry.container!r:.100}")
        known = change.learn(sandbox, spec_of(fresh, pod, container))
        if entry.pool is not None:
            grant = _grant(fresh, known, entry, entry.pool)
            change.books.withdraw(entry.pool, grant.exclusive)
            change.books.account(entry.pool, shared=grant.shared, reserved=grant.reserved)
            change.books.add(grant)
            change.names[known.full_name] = grant.container
            claim = memory.claim_of(sandbox.qos, grant.memory, len(claims), grant.zone)
            claims.append((grant.container, claim))
    for grant in change.books.grants.values():
        change.apply(grant)
    change.memory = memory.state_of(claims, zones)
    return change.node({})


def _grant(fresh: Node, known: Known, entry: _Entry, pool: Pool) -> Grant:
    """Return a container's grant, from its request and its place."""
    try:
        wanted = request.build(fresh.policy, known.sandbox, entry.container, known.wants)
    except Rejection as rejection:
        raise _unreadable(f"container {known.full_name} is rejected: {rejection.message}") from rejection
    cpu = wanted.cpu
    suits = (
        entry.exclusive.bit_count() == cpu.full
        and (cpu.kind is CPUType.RESERVED or not entry.shared)
        and (cpu.kind is CPUType.NORMAL or pool is fresh.policy.tree.root)
        and not wanted.cold_start
    )
    if not suits:
        raise _unreadable(f"container {known.full_name} does not request what the record says it holds")
    kind = CPUType.NORMAL if entry.shared else cpu.kind
    return Grant(
        container=known.spec.id,
        pool=pool.id,
        kind=kind,
        exclusive=entry.exclusive,
        portion=cpu.fraction,
        memory_types=wanted.memory_types,
        zone=entry.zone,
        memory=wanted.memory,
        cold_start=wanted.cold_start,
        idle=is_idle(known, kind),
    )


def _entries(fresh: Node, pods: Iterable[Any]) -> Iterator[_Entry]:
    for pod in pods:
        _check_fields(pod, _POD_FIELDS, "a pod")
        uid = _text(pod, "uid")
        for container in _items(pod, "containers"):
            _check_fields(container, _HOLDING_FIELDS | {"name"}, "a container")
            name = _text(container, "name")
            if container.keys() == {"name"}:
                yield _Entry(uid, name, None)
                continue
            shared = container.get("shared", False)
            if not isinstance(shared, bool):
                raise _unreadable(f"shared of container {name:.100} is {shared!r:.100}, not true or false")
            pool = _pool(fresh, container)
            yield _Entry(
                uid, name, pool, _mask(container.get("cpus", "")), _mask(container.get("zone")), shared
            )


def _pool(fresh: Node, container: Record) -> Pool:
    found = container.get("pool")
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < len(fresh.pools):
        raise _unreadable(
            f"container {container['name']:.100} is in pool {found!r:.100}, which does not exist"
        )
    return fresh.pools[found]


def _check_holdings(entries: Iterable[_Entry]) -> None:
    """CPUs must be the pool's and nobody else's, and every container stands there once."""
    taken: CPUSet = 0
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if (entry.uid, entry.container) in seen:
            raise _unreadable(f"container {entry.container:.100} of pod {entry.uid:.100} appears twice")
        seen.add((entry.uid, entry.container))
        if entry.pool is None:
            continue
        if stray := entry.exclusive & ~(entry.pool.sharable | entry.pool.isolated):
            raise _unreadable(f"CPUs {cpuset.format(stray):.100} do not belong to {entry.pool.name}")
        if again := entry.exclusive & taken:
            raise _unreadable(f"CPUs {cpuset.format(again):.100} are assigned twice")
        taken |= entry.exclusive


def _memory_zones(fresh: Node, record: Record, entries: Iterable[_Entry]) -> list[int]:
    """Zones in their order, those in use among them."""
    zones = [_mask(text) for text in _items(record, "memoryZones")]
    everything = fresh.policy.memory.everything
    if len(set(zones)) < len(zones) or any(not zone or zone & ~everything for zone in zones):
        raise _unreadable(
            f"its memory zones repeat, are empty, or go beyond NUMA nodes {cpuset.format(everything)}"
        )
    for entry in entries:
        if entry.pool is not None and entry.zone not in zones:
            raise _unreadable(f"the memory zone of container {entry.container:.100} is not among its zones")
    return zones


def _uids(record: Record) -> dict[str, None]:
    return dict.fromkeys(_text(pod, "uid") for pod in _items(record, "pods"))


def _check_fields(found: Any, fields: frozenset[str], name: str) -> None:
    if not isinstance(found, Mapping):
        raise _unreadable(f"{name} is not a mapping: {found!r:.100}")
    if unknown := [str(key) for key in found if key not in fields]:
        raise _unreadable(f"{name} has unknown fields: {', '.join(unknown):.100}")


def _items(owner: Record, field: str) -> list[Any]:
    items = owner.get(field)
    if not isinstance(items, list):
        raise _unreadable(f"{field} is not a list: {items!r:.100}")
    return items


def _text(owner: Record, field: str) -> str:
    text = owner.get(field)
    if not isinstance(text, str) or not text:
        raise _unreadable(f"{field} is not a string: {text!r:.100}")
    return text


def _mask(text: Any) -> CPUSet:
    if not isinstance(text, str):
        raise _unreadable(f"{text!r:.100} is not a list of CPUs or NUMA nodes")
    try:
        return cpuset.parse(text)
    except InvalidCPUSet as error:
        raise _unreadable(str(error)) from error


def _unreadable(problem: str) -> UnreadableNode:
    return UnreadableNode(
        f"the record of allocations on the node cannot be read: {problem}; the operator will rewrite it"
    )
