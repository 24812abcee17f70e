"""Changes of a node as pods and containers come and go.

Each event answers with what the runtime is told. An event that fails tells nothing, but what it had
already prepared for other containers is not lost: it is told with the next successful one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from numazones.cpuset import CPUSet
from numazones_topology_aware import requirements, topology_hints
from numazones_topology_aware.cpu_state import CPUBooks, Grant
from numazones_topology_aware.memory_types import PRESERVE
from numazones_topology_aware.node import ContainerUpdate, Known, Node, followed_cpus, visible_cpus
from numazones_topology_aware.pool_selection import Assessment, PoolSelection
from numazones_topology_aware.rejection import Rejection
from numazones_topology_aware.request import CPUType
from numazones_topology_aware.requirements import shares_of_milli
from numazones_topology_aware.sandbox import ContainerSpec, Sandbox

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to an event."""

    node: Node
    """The node afterwards."""
    error: Rejection | None = None
    own: ContainerUpdate | None = None
    """What a new container is created with; None unless one was."""
    direct_updates: Mapping[str, ContainerUpdate] = field(default_factory=dict)
    """Container id → changes, except those of containers that merely follow their pools."""
    followers: bool = False
    """All containers that run on their pools' sharable CPUs are told these again."""
    subject: str = ""
    """The container that the event was about."""
    assessment: Assessment | None = None
    """Of the container that was to be placed, as far as the policy got."""

    @property
    def updates(self) -> dict[str, ContainerUpdate]:
        """Container id → everything that changes for it, except a newly created one."""
        updates = dict(self.direct_updates)
        if self.followers:
            for name, cpus in _followed_cpus(self.node, self.subject).items():
                updates[name] = updates.get(name, ContainerUpdate()).then(ContainerUpdate(cpus=cpus))
        return updates


def _followed_cpus(node: Node, subject: str) -> dict[str, CPUSet]:
    """CPUs of all containers that follow their pools, the subject excepted."""
    policy, containers = node.policy, node.containers
    return {
        name: followed_cpus(policy, node.cpus, containers[name], grant)
        for name, grant in node.grants.items()
        if grant.follows_pool and name != subject
    }


def run_pod(node: Node, sandbox: Sandbox) -> Node:
    """Return the node after a pod's sandbox started."""
    return replace(node, sandboxes={**node.sandboxes, sandbox.id: sandbox})


def remove_pod(node: Node, sandbox: str) -> Node:
    """Return the node after a pod's sandbox was removed; its containers must be stopped before."""
    left = {name: one for name, one in node.sandboxes.items() if name != sandbox}
    kept = {
        name: known
        for name, known in node.containers.items()
        if known.sandbox.id != sandbox or name in node.grants
    }
    return replace(node, sandboxes=left, containers=kept)


def create(node: Node, sandbox: str, spec: ContainerSpec) -> Outcome:
    """Create a container and start it; an older one of the same name is removed first.

    Raises:
        UnmodelledFeature, PluginCrash: the plugin's answer is not known, or there is none.
    """
    change = Change(node, spec.id)
    known = change.learn(node.sandboxes[sandbox], spec)
    old = change.names.pop(known.full_name, None)
    if old is not None:
        change.remove(old)
    try:
        change.place(known)
    except Rejection as rejection:
        return change.failure(rejection)
    change.names[known.full_name] = spec.id
    own = change.updates.pop(spec.id, ContainerUpdate())
    return replace(change.outcome(), own=own)


def stop(node: Node, container: str) -> Outcome:
    """Stop a container and remove it; unknown ones change nothing."""
    known = node.containers.get(container)
    if known is None:
        return Outcome(node)
    change = Change(node, container)
    if change.names.get(known.full_name) == container:
        del change.names[known.full_name]
    change.remove(container)
    del change.containers[container]
    change.updates.pop(container, None)
    return change.outcome()


class Change:
    """A node while an event changes it."""

    def __init__(self, node: Node, subject: str) -> None:
        self.before = node
        self.policy = node.policy
        self.subject = subject
        self.books = CPUBooks(node.policy.tree, node.cpus, dict(node.grants))
        self.memory = node.memory
        self.containers = dict(node.containers)
        self.names = dict(node.names)
        self.updates = dict(node.pending)
        self.followers = False
        self.assessment: Assessment | None = None

    def learn(self, sandbox: Sandbox, spec: ContainerSpec) -> Known:
        """Remember a new container."""
        wants = requirements.from_annotation(sandbox, spec.name) or requirements.estimate(
            spec.cgroup, sandbox.qos, memory_capacity=self.policy.topology.memory_capacity
        )
        hints = topology_hints.of_container(sandbox, spec, self.policy.topology)
        known = Known(sandbox, spec, hints, wants, spec.cgroup)
        self.containers[spec.id] = known
        return known

    def place(self, known: Known, hinted_pool: str | None = None) -> Grant:
        """Grant a container something and note what that changes for it and for others.

        Raises:
            Rejection: nothing is granted.
        """
        selection = PoolSelection(self.policy, self.books, self.memory, self.containers, known)
        try:
            grant, zones = selection.place(hinted_pool)
        finally:
            self.memory, self.assessment = selection.memory, selection.assessment
        self.move_memory(zones)
        self.apply(grant)
        self.followers |= grant.kind is not CPUType.RESERVED
        return grant

    def remove(self, container: str) -> None:
        """Take back what a container holds."""
        self.freeze(container)
        grant = self.books.remove(container)
        if grant is not None:
            self.memory = self.policy.memory.remove(self.memory, container)
            self.followers |= grant.kind is not CPUType.RESERVED

    def freeze(self, container: str) -> None:
        """Note the CPUs that a container got last, before it stops following its pool."""
        if container in self.books.grants:
            known = self.containers[container]
            self.containers[container] = replace(known, cpus=self.before.cpus_of(container))

    def move_memory(self, zones: Mapping[str, int]) -> None:
        """Give containers other memory zones."""
        for name, zone in zones.items():
            grant = self.books.grants.get(name)
            if grant is not None:
                self.books.exchange(replace(grant, zone=zone))
                if self.policy.config.pin_memory:
                    self.tell(name, ContainerUpdate(mems=zone))

    def apply(self, grant: Grant) -> None:
        """Pin a container to what it was granted."""
        config = self.policy.config
        known = self.containers[grant.container]
        update = ContainerUpdate()
        if config.pin_cpu:
            update = ContainerUpdate(
                cpus=self._pinned_cpus(known, grant), shares=shares_of_milli(_weight(grant))
            )
        if grant.memory_types != PRESERVE:
            update = replace(update, mems=grant.zone if config.pin_memory else 0)
        self.tell(grant.container, update)

    def _pinned_cpus(self, known: Known, grant: Grant) -> CPUSet | None:
        if grant.kind is CPUType.PRESERVE:
            return None
        if grant.kind is CPUType.RESERVED:
            return visible_cpus(self.policy, known, self.policy.tree.pools[grant.pool].reserved)
        if grant.follows_pool:
            return followed_cpus(self.policy, self.books.state, known, grant)
        return visible_cpus(self.policy, known, grant.exclusive)

    def tell(self, container: str, update: ContainerUpdate) -> None:
        """Note what changes for a container, and remember it as the container's values."""
        if update == ContainerUpdate():
            return
        self.updates[container] = self.updates.get(container, ContainerUpdate()).then(update)
        known = self.containers[container]
        self.containers[container] = replace(
            known,
            cpus=known.cpus if update.cpus is None else update.cpus,
            mems=known.mems if update.mems is None else update.mems,
            cgroup=known.cgroup if update.shares is None else replace(known.cgroup, shares=update.shares),
        )

    def node(self, pending: Mapping[str, ContainerUpdate]) -> Node:
        """Return the node with what has changed so far."""
        return Node(
            policy=self.policy,
            cpus=self.books.state,
            memory=self.memory,
            sandboxes=self.before.sandboxes,
            containers=self.containers,
            grants=self.books.grants,
            names=self.names,
            pending=pending,
        )

    def outcome(self) -> Outcome:
        """Return the answer to an event that succeeded."""
        return Outcome(
            node=self.node({}),
            direct_updates=self.updates,
            followers=self.followers and self.policy.config.pin_cpu,
            subject=self.subject,
            assessment=self.assessment,
        )

    def failure(self, rejection: Rejection) -> Outcome:
        """Return the answer to an event that failed."""
        left = self.outcome()
        pending = left.updates if left.followers else self.updates
        return Outcome(
            replace(left.node, pending=pending),
            error=rejection,
            subject=self.subject,
            assessment=self.assessment,
        )


def _weight(grant: Grant) -> int:
    """Milli-CPU by which a container is weighted: its shared part, or else its exclusive CPUs."""
    portion = grant.reserved if grant.kind is CPUType.RESERVED else grant.shared
    return portion or _MILLI * grant.exclusive.bit_count()
