"""Devices of dynamic resource allocation, as the API server last told of them: classes, slices and claims."""

from collections.abc import Callable, Iterable

from numazones.cluster.cluster import device_classes
from numazones.dra.amounts import NodeDevices
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass as SelectingClass
from numazones.dra.devices import Slice
from numazones.dra.inventory import Inventory
from numazones_client.table import Table
from numazones_operator.mirror.decoding import DeviceClassUse


class DeviceObjects:
    """Tables that reflectors keep up to date, and what they mean for each node."""

    def __init__(self, changed: Callable[[Iterable[str] | None], None]) -> None:
        """``changed`` is told the nodes that a change concerns; None: all."""
        self._changed = changed
        self.classes: Table[DeviceClassUse] = Table(lambda one: one.name, self._class_changed)
        self.slices: Table[Slice] = Table(lambda one: one.name, self._slice_changed)
        self.claims: Table[DeviceClaim] = Table(lambda one: one.full_name, self._claim_changed)
        self.resources: dict[str, str] = {}
        """Extended resource → DeviceClass."""
        self.selectors: dict[str, SelectingClass] = {}
        """Name of a DeviceClass → which devices it selects."""
        self._inventory = Inventory()

    def of(self, node: str) -> NodeDevices | None:
        """Return the devices of a node, and who has them; None where no driver publishes any."""
        return self._inventory.of(node) if len(self.slices) else None

    def _class_changed(self, _old: DeviceClassUse | None, _new: DeviceClassUse | None) -> None:
        resources = device_classes(item.body for item in self.classes)
        selectors = {item.name: item.selecting for item in self.classes}
        if (resources, selectors) != (self.resources, self.selectors):
            self.resources, self.selectors = resources, selectors
            self._changed(None)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        if old != new:
            self._changed(self._inventory.take_slice(old, new))

    def _claim_changed(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        self._changed(self._inventory.take_claim(old, new))
