"""Devices of dynamic resource allocation, as the API server last told of them: classes, slices and claims."""

from collections.abc import Callable, Collection, Iterable

from numazones.dra.amounts import NodeDevices
from numazones.dra.claims import DeviceClaim
from numazones.dra.cluster_devices import ClusterDevices
from numazones.dra.device_classes import DeviceClass
from numazones.dra.device_tables import DeviceTables
from numazones.dra.devices import Slice
from numazones.dra.extended_resources import classes_by_resource
from numazones.dra.inventory import Inventory
from numazones.errors import ObjectFault
from numazones_client.table import Table, TableChange


def _ignore(_old: object, _new: object) -> None:
    """Take no notice of a change."""


class DeviceObjects:
    """Tables that reflectors keep up to date, and what they mean for each node."""

    def __init__(
        self,
        changed: Callable[[Iterable[str] | None], None],
        claim_changed: Callable[[str], None],
        *,
        tell: Callable[[ObjectFault], object] = lambda _fault: None,
    ) -> None:
        """Know nothing yet.

        Args:
            changed: called with the nodes that a change concerns; None: all.
            claim_changed: called with NAMESPACE/NAME of a claim or a template, for the pods that name it.
            tell: called with what is raised about a claim or a slice.
        """
        self._changed = changed
        self._claim_changed_for_pods = claim_changed
        self.claim_changes: TableChange[DeviceClaim] = _ignore
        """Called with a claim before and after a change, while nothing here knows of it yet."""
        self.slice_changes: TableChange[Slice] = _ignore
        """The same with a slice."""
        self.classes: Table[DeviceClass] = Table(lambda one: one.name, self._class_changed)
        self.slices: Table[Slice] = Table(lambda one: one.name, self._slice_changed)
        self.claims: Table[DeviceClaim] = Table(lambda one: one.full_name, self._claim_changed)
        self.templates: Table[DeviceClaim] = Table(lambda one: one.full_name, self._template_changed)
        self.resources: dict[str, str] = {}
        """Extended resource → DeviceClass."""
        self.selectors: dict[str, DeviceClass] = {}
        """Name of a DeviceClass → which devices it selects."""
        self._inventory = Inventory(tell=tell)
        self._tables = DeviceTables()

    @property
    def current(self) -> ClusterDevices | None:
        """Devices that the scheduler allocates from; None if no driver publishes devices."""
        return self._tables.current

    def take_version(self, node: str, version: str) -> None:
        """Take in the version of a node's kubelet; empty: the node is gone."""
        if self._tables.take_version(node, version):
            self._changed(None)

    def take_unreadable(self, resources: Iterable[str]) -> None:
        """Take in which kinds of objects may not be read, of those that devices are allocated from."""
        if self._tables.take_unreadable(resources):
            self._changed(None)

    def of(self, node: str) -> NodeDevices | None:
        """Return the devices of a node, and who has them; None where no driver publishes any."""
        return self._inventory.of(node) if len(self.slices) else None

    def _class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        differs = self._tables.take_class(old, new) is None
        resources, selectors = classes_by_resource(self.classes), {one.name: one for one in self.classes}
        if differs or (resources, selectors) != (self.resources, self.selectors):
            self.resources, self.selectors = resources, selectors
            self._changed(None)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        if old != new:
            self.slice_changes(old, new)
            self._tell(self._inventory.take_slice(old, new), self._tables.take_slice(old, new))

    def _claim_changed(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        self.claim_changes(old, new)
        self._tell(self._inventory.take_claim(old, new), self._tables.take_claim(old, new))
        for one in (new or old,):
            if one is not None:
                self._claim_changed_for_pods(one.full_name)

    def _template_changed(self, old: DeviceClaim | None, new: DeviceClaim | None) -> None:
        self._tables.take_template(old, new)
        for one in (new or old,):
            if one is not None:
                self._claim_changed_for_pods(one.full_name)

    def _tell(self, *concerned: Collection[str] | None) -> None:
        """Report the nodes that any of several parts finds affected."""
        names = [nodes for nodes in concerned if nodes is not None]
        self._changed(None if len(names) < len(concerned) else set().union(*names))
