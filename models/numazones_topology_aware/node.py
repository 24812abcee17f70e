"""A node under the topology-aware policy as a value: what was started, and who holds what.

Nodes are immutable; every event gives a new one that shares what did not change.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from numazones.cpuset import CPUSet
from numazones_topology_aware.config import Configuration
from numazones_topology_aware.cpu_state import CPUState, Grant
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.memory import MemoryState
from numazones_topology_aware.policy import Policy
from numazones_topology_aware.pools import Pool
from numazones_topology_aware.requirements import Requirements
from numazones_topology_aware.sandbox import CGroup, ContainerSpec, Sandbox
from numazones_topology_aware.topology_hints import Hint


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """Settings the runtime must apply to a container; None: nothing, an empty set: no pinning."""

    cpus: CPUSet | None = None
    mems: int | None = None
    """Mask of NUMA nodes."""
    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    memory_limit: int | None = None

    def then(self, later: "ContainerUpdate") -> "ContainerUpdate":
        """Return both updates as one; where both set a value, the later one counts."""
        return ContainerUpdate(
            self.cpus if later.cpus is None else later.cpus,
            self.mems if later.mems is None else later.mems,
            self.shares if later.shares is None else later.shares,
            self.quota if later.quota is None else later.quota,
            self.period if later.period is None else later.period,
            self.memory_limit if later.memory_limit is None else later.memory_limit,
        )


@dataclass(frozen=True, slots=True)
class Known:
    """A container that the plugin remembers, with a grant or without."""

    sandbox: Sandbox
    spec: ContainerSpec
    hints: Mapping[str, Hint]
    requirements: Requirements
    """As of its creation."""
    cgroup: CGroup
    """With the CPU shares that the policy set."""
    resized: Requirements | None = None
    """After the first resize."""
    cpus: CPUSet = 0
    """What it was last told, unless it follows its pool."""
    mems: int = 0

    @property
    def wants(self) -> Requirements:
        """Return the container's current request."""
        return self.resized or self.requirements

    @property
    def full_name(self) -> str:
        """NAMESPACE/POD/CONTAINER; a new container of the same name replaces the old one."""
        return f"{self.sandbox.namespace}/{self.sandbox.name}/{self.spec.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """A started policy and its containers."""

    policy: Policy = field(repr=False)
    cpus: CPUState
    memory: MemoryState
    sandboxes: Mapping[str, Sandbox] = field(default_factory=dict)
    """Pod sandbox id → pod."""
    containers: Mapping[str, Known] = field(default_factory=dict)
    """Container id → container."""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """Container id → grant."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Full name → id of the container that was created last."""
    pending: Mapping[str, ContainerUpdate] = field(default_factory=dict)
    """Container id → what a failed event left to be told with the next successful one."""

    @classmethod
    def fresh(cls, hardware: Hardware, config: Configuration) -> "Node":
        """Return a node without containers.

        Raises:
            StartFailed: the plugin would not start.
        """
        policy = Policy.start(hardware, config)
        return cls(policy, CPUState.initial(policy.tree), MemoryState())

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All pools by id."""
        return self.policy.tree.pools

    @property
    def pods(self) -> frozenset[str]:
        """Uids of the pods whose containers hold something here."""
        return frozenset(self.containers[name].sandbox.uid for name in self.grants)

    def holds(self, uid: str) -> bool:
        """Return whether a pod's containers hold something here."""
        return any(self.containers[name].sandbox.uid == uid for name in self.grants)

    @property
    def state_key(self) -> Hashable:
        """Equal for nodes that decide alike on pods new to them.

        Who sits where counts by namespace, pod and labels (not uids), because affinities may ask for them.
        """
        claims = sorted(self.memory.claims.values(), key=lambda claim: claim.created)
        held = [(self.containers[name], grant) for name, grant in self.grants.items()]
        return (
            self.policy.fingerprint,
            self.cpus,
            tuple(self.memory.zones.items()),
            tuple((claim.zone, claim.size, claim.priority) for claim in claims),
            tuple(
                sorted(
                    (known.full_name, grant.pool, grant.exclusive, *_labels(known)) for known, grant in held
                )
            ),
        )

    def free_memory(self, pool: Pool) -> int:
        """Bytes of a pool's NUMA nodes that no container inside them is accounted for."""
        dram, pmem, hbm = pool.memory
        return self.policy.memory.free(self.memory, dram | pmem | hbm)

    def cpus_of(self, container: str) -> CPUSet:
        """Return the CPUs that a container was last pinned to; 0: not pinned."""
        known = self.containers[container]
        grant = self.grants.get(container)
        if grant is None or not grant.follows_pool or not self.policy.config.pin_cpu:
            return known.cpus
        return followed_cpus(self.policy, self.cpus, known, grant)


def _labels(known: Known) -> tuple[tuple[str, str], ...]:
    """Labels of a container and its pod, by key."""
    labels = (*known.sandbox.labels.items(), *known.spec.labels.items())
    return tuple(sorted(one for one in labels if one[0] != "io.kubernetes.pod.uid"))


def followed_cpus(policy: Policy, state: CPUState, known: Known, grant: Grant) -> CPUSet:
    """CPUs of a container that runs on its pool's sharable ones and maybe on exclusive ones."""
    return visible_cpus(policy, known, grant.exclusive | state.sharable[grant.pool])


def visible_cpus(policy: Policy, known: Known, cpus: CPUSet) -> CPUSet:
    """Return the CPUs without second threads of cores, for containers that hide these."""
    if known.sandbox.annotations and known.sandbox.flag("hide-hyperthreads", known.spec.name):
        return policy.topology.one_thread_per_core(cpus)
    return cpus
