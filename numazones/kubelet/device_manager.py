"""The Device Manager: hints and choice of devices that device plugins announce.

Rules: ``devicemanager`` of kubelet 1.36. Devices of one resource are numbered in the order of their
ids, sets of devices are masks over these numbers. Where the kubelet picks at random among devices
that are equal to it, the lowest ids are taken here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from numazones import cpuset
from numazones.errors import NumazonesError
from numazones.kubelet import effort
from numazones.kubelet.hints import ResourceHints, indifferent, masks_of_size, unsatisfiable
from numazones.kubelet.rejection import Rejection

PreferredAllocation = Callable[[str, Sequence[str], Sequence[str], int], Iterable[str]]
"""GetPreferredAllocation of a plugin: (resource, available ids, ids that must be in, size) → ids."""

NO_NUMA = -1
"""Stands for the NUMA node of a device without topology information."""


class InvalidDevices(NumazonesError):
    """A list of devices contradicts itself; the message names resource and device."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device that a plugin announces.

    >>> Device("nic-0", (1,)).healthy
    True
    """

    id: str
    numa: tuple[int, ...] = ()
    """NUMA nodes; empty: the plugin gives no topology information."""
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class DeviceResource:
    """All devices of one resource."""

    name: str
    devices: tuple[Device, ...]
    """In the order of their ids."""
    registered: bool
    """A plugin has registered the resource; False: it is only known from assignments."""

    healthy: int = field(compare=False, repr=False)
    numa_masks: tuple[int, ...] = field(compare=False, repr=False)
    """Per device its NUMA nodes; 0: no topology information."""
    hosting: int = field(compare=False, repr=False)
    """NUMA nodes that host a device, healthy or not."""
    without_topology: int = field(compare=False, repr=False)
    by_numas: tuple[tuple[int, int], ...] = field(compare=False, repr=False)
    """(NUMA mask, devices) for every NUMA mask that devices have."""
    index: Mapping[str, int] = field(compare=False, repr=False)
    """Device id → number."""

    @classmethod
    def of(cls, name: str, devices: Iterable[Device], *, registered: bool = True) -> "DeviceResource":
        """Number the devices of a resource.

        Raises:
            InvalidDevices: an id appears twice.
        """
        ordered = tuple(sorted(devices, key=lambda device: device.id))
        index = {device.id: number for number, device in enumerate(ordered)}
        if len(index) != len(ordered):
            raise InvalidDevices(f"{name}: a device id appears twice; list each device once")
        numa_masks = tuple(cpuset.of(device.numa) for device in ordered)
        by_numas: dict[int, int] = {}
        for number, mask in enumerate(numa_masks):
            by_numas[mask] = by_numas.get(mask, 0) | 1 << number
        return cls(
            name=name,
            devices=ordered,
            registered=registered,
            healthy=cpuset.of(number for number, device in enumerate(ordered) if device.healthy),
            numa_masks=numa_masks,
            hosting=cpuset.union(numa_masks),
            without_topology=by_numas.pop(0, 0),
            by_numas=tuple(sorted(by_numas.items())),
            index=index,
        )

    def ids(self, mask: int) -> tuple[str, ...]:
        """Return the ids of the devices of a mask, ascending."""
        return tuple(self.devices[number].id for number in cpuset.ids(mask))

    def numas(self, mask: int) -> tuple[int, ...]:
        """Return the NUMA ids of a mask's devices, one entry per device and node, -1 for none, ascending."""
        numas: list[int] = []
        for number in cpuset.ids(mask):
            numas.extend(cpuset.ids(self.numa_masks[number]) if self.numa_masks[number] else (NO_NUMA,))
        return tuple(sorted(numas))

    def devices_near(self, numa_mask: int) -> int:
        """Return the devices that have a NUMA node in the mask."""
        found = 0
        for mask, devices in self.by_numas:
            if mask & numa_mask:
                found |= devices
        return found


class DeviceState(NamedTuple):
    """Devices that containers hold."""

    allocated: Mapping[str, int] = MappingProxyType({})
    """Resource → devices in use."""
    assignments: Mapping[str, Mapping[str, Mapping[str, int]]] = MappingProxyType({})
    """Pod uid → container → resource → devices."""

    def assign(self, uid: str, container: str, resource: str, devices: int) -> "DeviceState":
        """Record devices of a container."""
        containers = self.assignments.get(uid, {})
        resources = {**containers.get(container, {}), resource: devices}
        return DeviceState(
            {**self.allocated, resource: self.allocated.get(resource, 0) | devices},
            {**self.assignments, uid: {**containers, container: resources}},
        )

    def remove(self, uid: str) -> "DeviceState":
        """Forget a pod."""
        if uid not in self.assignments:
            return self
        assignments = {pod: containers for pod, containers in self.assignments.items() if pod != uid}
        return DeviceState(in_use(assignments), assignments)


def in_use(assignments: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, int]:
    """Return resource → all devices that some container holds."""
    allocated: dict[str, int] = {}
    for containers in assignments.values():
        for resources in containers.values():
            for resource, devices in resources.items():
                allocated[resource] = allocated.get(resource, 0) | devices
    return allocated


@dataclass(frozen=True, slots=True)
class DeviceManager:
    """The devices of a node."""

    resources: Mapping[str, DeviceResource] = field(hash=False)
    numa_mask: int
    over_hosting_nodes: bool = True
    skips_claimed: bool = True
    """What dynamic resource allocation serves is not given out here as well."""
    preferred_allocation: PreferredAllocation | None = None

    @classmethod
    def start(
        cls,
        devices: Mapping[str, Iterable[Device]],
        numa_mask: int,
        *,
        over_hosting_nodes: bool,
        skips_claimed: bool,
        preferred_allocation: PreferredAllocation | None = None,
    ) -> "DeviceManager":
        """Register the devices; a resource with an empty list is registered without devices.

        Raises:
            InvalidDevices: an id appears twice in a resource.
        """
        resources = {name: DeviceResource.of(name, items) for name, items in sorted(devices.items())}
        return cls(resources, numa_mask, over_hosting_nodes, skips_claimed, preferred_allocation)

    def requests(
        self, state: DeviceState, limits: tuple[tuple[str, int], ...]
    ) -> list[tuple[DeviceResource, int]]:
        """Return the limits that concern the Device Manager: of resources registered or in use."""
        if not self.resources:
            return []
        return [
            (self.resources[name], count)
            for name, count in limits
            if name in self.resources and (self.resources[name].registered or name in state.allocated)
        ]

    def container_hints(
        self,
        state: DeviceState,
        uid: str,
        container: str,
        limits: tuple[tuple[str, int], ...],
        reusable: Mapping[str, int],
    ) -> Iterator[ResourceHints]:
        """Yield hints for a container, one list per resource."""
        for resource, count in self.requests(state, limits):
            held = state.assignments.get(uid, {}).get(container, {}).get(resource.name)
            yield self._hints(state, resource, count, held=held, reusable=reusable.get(resource.name, 0))

    def pod_hints(
        self, state: DeviceState, uid: str, limits: tuple[tuple[str, int], ...]
    ) -> Iterator[ResourceHints]:
        """Yield hints for a pod as a whole."""
        for resource, count in self.requests(state, limits):
            held = 0
            for resources in state.assignments.get(uid, {}).values():
                held |= resources.get(resource.name, 0)
            yield self._hints(state, resource, count, held=held, reusable=0)

    def _hints(
        self, state: DeviceState, resource: DeviceResource, count: int, *, held: int | None, reusable: int
    ) -> ResourceHints:
        if not resource.hosting:
            return indifferent(resource.name)
        if held:
            if held.bit_count() != count:
                return unsatisfiable(resource.name)
            return self._masks(resource, held, 0, count)
        available = self.available(state, resource)
        if (available | reusable).bit_count() < count:
            return unsatisfiable(resource.name)
        return self._masks(resource, available, reusable, count)

    def available(self, state: DeviceState, resource: DeviceResource) -> int:
        """Return the healthy devices that no container holds."""
        return resource.healthy & ~state.allocated.get(resource.name, 0)

    def _masks(self, resource: DeviceResource, available: int, reusable: int, count: int) -> ResourceHints:
        nodes = self._nodes(resource)
        size_of_nodes = nodes.bit_count()
        effort.check_device_walk(
            resource.name, size_of_nodes, len(resource.devices), over_hosting=self.over_hosting_nodes
        )
        reusable &= ~resource.without_topology
        missing = count - reusable.bit_count()

        def enough(mask: int) -> bool:
            touching = resource.devices_near(mask)
            return reusable & ~touching == 0 and (touching & available).bit_count() >= missing

        narrowest = self.fewest_numas(resource, count)

        def others() -> tuple[int, ...]:
            # Fewer NUMA nodes never suffice: fewest_numas also counts devices in use, such as reusable ones.
            wider = range(narrowest + 1, size_of_nodes + 1)
            return tuple(mask for size in wider for mask, _ in masks_of_size(nodes, size) if enough(mask))

        preferred = tuple(mask for mask, _ in masks_of_size(nodes, narrowest) if enough(mask))
        return ResourceHints(resource.name, preferred, others, nodes=size_of_nodes)

    def fewest_numas(self, resource: DeviceResource, count: int) -> int:
        """Return the least number of NUMA nodes whose devices, in use or not, are enough, or all of them."""
        nodes = self._nodes(resource)
        for size in range(1, nodes.bit_count()):
            for mask, _ in masks_of_size(nodes, size):
                if resource.devices_near(mask).bit_count() >= count:
                    return size
        return nodes.bit_count()

    def _nodes(self, resource: DeviceResource) -> int:
        """Return the NUMA nodes over which hints are made."""
        hosting = resource.hosting & self.numa_mask if self.over_hosting_nodes else 0
        return hosting or self.numa_mask

    def offer(self, state: DeviceState, resource: DeviceResource, numa_mask: int, reusable: int) -> int:
        """Return how many devices NUMA nodes could give; reusable ones count if none lies elsewhere."""
        touching = resource.devices_near(numa_mask)
        free = (self.available(state, resource) & touching).bit_count()
        reusable &= ~resource.without_topology
        return free if reusable & ~touching else free + reusable.bit_count()

    def allocate(
        self,
        state: DeviceState,
        uid: str,
        container: str,
        *,
        limits: tuple[tuple[str, int], ...],
        affinity: int | None,
        reusable: Mapping[str, int],
        claimed: frozenset[tuple[str, str]] = frozenset(),
    ) -> DeviceState:
        """Give a container its devices.

        Raises:
            Rejection: they cannot be had.
        """
        for resource, count in self.requests(state, limits):
            if self.skips_claimed and (container, resource.name) in claimed:
                continue
            taken = self._choose(
                state, uid, container, resource=resource, count=count, affinity=affinity,
                reusable=reusable.get(resource.name, 0),
            )  # fmt: skip
            if taken:
                state = state.assign(uid, container, resource.name, taken)
        return state

    def _choose(
        self,
        state: DeviceState,
        uid: str,
        container: str,
        *,
        resource: DeviceResource,
        count: int,
        affinity: int | None,
        reusable: int,
    ) -> int:
        """Choose devices to add for a container; 0 if none are needed."""
        held = state.assignments.get(uid, {}).get(container, {}).get(resource.name)
        if held is not None and held.bit_count() != count:
            raise Rejection(
                f'pod "{uid}" container "{container}" changed request for resource "{resource.name}" '
                f"from {held.bit_count()} to {count}"
            )
        if not resource.registered:
            raise Rejection(f"cannot allocate unregistered device {resource.name}")
        if not resource.healthy:
            raise Rejection(f"no healthy devices present; cannot allocate unhealthy devices {resource.name}")
        if held is not None and held & ~resource.healthy:
            raise Rejection(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource.name}"
            )
        if held is not None or count == 0:
            return 0
        taken = _fill(0, count, reusable)
        needed = count - taken.bit_count()
        if needed == 0:
            return taken
        available = self.available(state, resource) & ~taken
        if available.bit_count() < needed:
            raise Rejection(
                f"requested number of devices unavailable for {resource.name}. "
                f"Requested: {needed}, Available: {available.bit_count()}"
            )
        return self._from_available(
            resource, available=available, taken=taken, count=count, affinity=affinity
        )

    def _from_available(
        self, resource: DeviceResource, *, available: int, taken: int, count: int, affinity: int | None
    ) -> int:
        """Choose aligned devices, then others, then those without topology; the plugin may prefer."""
        aligned = unaligned = 0
        if affinity is not None and resource.hosting:
            aligned = resource.devices_near(affinity) & available
            unaligned = available & ~aligned & ~resource.without_topology
        if count - taken.bit_count() < aligned.bit_count():
            preferred = self._plugin_choice(resource, aligned | taken, taken, count) & aligned
            return _fill(taken, count, preferred, aligned)
        with_aligned = taken | aligned
        if with_aligned.bit_count() == count:
            return with_aligned
        preferred = self._plugin_choice(resource, available | with_aligned, with_aligned, count) & available
        return _fill(with_aligned, count, preferred, unaligned, available)

    def _plugin_choice(self, resource: DeviceResource, available: int, must_include: int, count: int) -> int:
        if self.preferred_allocation is None:
            return 0
        chosen = self.preferred_allocation(
            resource.name, resource.ids(available), resource.ids(must_include), count
        )
        return cpuset.of(resource.index[device] for device in chosen if device in resource.index)


def _fill(taken: int, count: int, *pools: int) -> int:
    """Add the first devices from one pool after the other until there are ``count``."""
    for pool in pools:
        left = pool & ~taken
        while left and taken.bit_count() < count:
            lowest = left & -left
            taken |= lowest
            left ^= lowest
    return taken
