"""All objects of dynamic resource allocation in a cluster, which change object by object.

``current`` is what the allocator takes. It is one value for all nodes that follows each change, since
thousands of nodes would otherwise keep a copy each. Who decides about nodes asks those again that ``take_*``
returns.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from numazones.dra.allocated import AllocatedTable
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices, allocator_rules, newest, shares_devices
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Key, PublishedDevice, Slice
from numazones.dra.slices import DeviceSlices
from numazones.wording import enumeration

Nodes = Collection[str] | None
"""Nodes that a change concerns; None: all."""


class DeviceTables:
    """The objects, and what the allocator sees of them."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._slices = DeviceSlices()
        self._published: dict[Key, PublishedDevice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[str, DeviceClaim] = {}
        self._templates: dict[str, DeviceClaim] = {}
        self._version_of: dict[str, str] = {}
        self._versions: Counter[str] = Counter()
        """Version → number of its kubelets."""
        self._newest = ""
        self._unreadable = ""
        self._current = self._make()

    @property
    def current(self) -> ClusterDevices | None:
        """Inputs of the allocator; None if no driver publishes devices."""
        return self._current if self._slices or self._unreadable else None

    def take_slice(self, old: Slice | None, new: Slice | None) -> Nodes:
        """Take in a slice as it was and as it is, None: it is not there; return the nodes concerned."""
        first = not self._slices
        nodes = self._slices.take(old, new)
        for one in () if new is None else new.devices:
            self._published[one.key] = one
        for one in () if old is None else old.devices:
            if self._published.get(one.key) is one:
                self._withdraw(one)
        return None if first or not self._slices else nodes

    def _withdraw(self, gone: PublishedDevice) -> None:
        """Forget a device, unless another slice, as of an older generation, publishes it, too."""
        slices = self._slices.of_pool((gone.driver, gone.pool))
        left = [one for found in slices for one in found.devices if one.key == gone.key]
        if left:
            self._published[gone.key] = left[-1]
        else:
            del self._published[gone.key]

    def take_class(self, old: DeviceClass | None, new: DeviceClass | None) -> Nodes:
        """Take in a DeviceClass; return the nodes concerned."""
        if new is not None:
            self._classes[new.name] = new
        elif old is not None:
            self._classes.pop(old.name, None)
        return () if old == new else None

    def take_claim(self, old: DeviceClaim | None, new: DeviceClaim | None) -> Nodes:
        """Take in a ResourceClaim; return the nodes whose devices it has, or had.

        For pods that use the claim, all nodes change (``ClusterDevices.settled``).
        """
        if new is not None:
            self._claims[new.full_name] = new
        elif old is not None:
            self._claims.pop(old.full_name, None)
        if old is not None and new is not None and old.allocations == new.allocations:
            return ()
        self._taken.take(old, new)
        allocations = [one for claim in (old, new) if claim is not None for one in claim.allocations]
        found = [self._slices.nodes_of(pool) for pool in {one.device[:2] for one in allocations}]
        return None if None in found else {name for nodes in found for name in nodes or ()}

    def take_template(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        """Take in a ResourceClaimTemplate; it concerns the pods that name it."""
        if new is not None:
            self._templates[new.full_name] = new
        elif old is not None:
            self._templates.pop(old.full_name, None)

    def take_version(self, node: str, version: str) -> bool:
        """Take in a kubelet's version, empty: its node is gone; return whether all nodes are concerned."""
        known = self._version_of.get(node, "")
        if known == version:
            return False
        self._version_of[node] = version
        self._versions[version] += 1
        self._versions[known] -= 1
        if not version:
            del self._version_of[node]
        before, self._newest = self._newest, newest(+self._versions)
        return before != self._newest and self._remade()

    def take_unreadable(self, resources: Iterable[str]) -> bool:
        """Take in which resources may not be read here; return whether all nodes are concerned."""
        names = sorted(resources)
        problem = f"there is no permission to read {enumeration(names)}" if names else ""
        if problem == self._unreadable:
            return False
        self._unreadable = problem
        return self._remade()

    def _remade(self) -> bool:
        self._current = self._make()
        return True

    def _make(self) -> ClusterDevices:
        found = self._unreadable or allocator_rules(self._newest)
        self._taken = AllocatedTable(shares=shares_devices(found))
        for claim in self._claims.values():
            self._taken.take(None, claim)
        return ClusterDevices(
            self._slices,
            self._published,
            self._classes,
            self._claims,
            self._templates,
            found,
            self._newest,
            self._taken.current,
        )
