"""Devices in ResourceSlices: their NUMA nodes, how they are shared, and what they consume.

Rules: types of resource.k8s.io/v1; a pool's slices of its highest generation count, and it is incomplete
while there are fewer of them than they say. The NUMA node is the standard attribute
``resource.kubernetes.io/numaNode`` (KEP-6072; an integer, or a list whose first is where the device is), else
an older one of the drivers. An attribute that is absent, negative or no number says nothing: the device is
never taken for one of NUMA node 0.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from numazones import cpuset
from numazones.apimachinery import quantity
from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.apimachinery.node_selector import SelectorTerm
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.taints import Taint
from numazones.dra import fields
from numazones.errors import NumazonesError

KIND: Final = "ResourceSlice"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_OWN_NAMES = ("numaNode", "numaNodeID", "numa")
"""What drivers call it in their own domain."""
_LENT_NAMES = ("dra.cpu/numaNodeID", "dra.net/numaNode")
"""Attributes of two drivers that others publish to be matched with them."""
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})

Key = tuple[str, str, str]
"""(driver, pool, device): what names a device in the cluster."""
Value = bool | int | str
_SCALARS: Final = {"int": int, "bool": bool, "string": str, "version": str}
LISTS: Final = {"ints": int, "bools": bool, "strings": str, "versions": str}


class DeviceAttribute(NamedTuple):
    """The value of an attribute, with the field of the API that holds it."""

    kind: str
    """int, bool, string or version, or ints, bools, strings or versions; empty: it has no value."""
    value: Value | tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """Which amounts of a capacity claims may take."""

    default: Quantity | None = None
    """What a claim takes that names no amount; None: all of it."""
    valid_values: tuple[Quantity, ...] = ()
    has_range: bool = False
    minimum: Quantity | None = None
    maximum: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device has of something."""

    value: Quantity
    policy: CapacityPolicy | None = None


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """The nodes from which devices can be used; nothing set: none."""

    node: str = ""
    all_nodes: bool = False
    terms: tuple[SelectorTerm, ...] | None = None
    """Those of a node selector; None: there is none."""

    def __bool__(self) -> bool:
        return bool(self.node) or self.all_nodes or self.terms is not None

    def includes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether it includes a node; the first that is set decides."""
        if self.node:
            return self.node == name
        if self.all_nodes or self.terms is None:
            return self.all_nodes
        return any(term.holds(name, labels) for term in self.terms)

    @property
    def well_formed(self) -> bool:
        """Whether its node selector can be read."""
        return all(term.well_formed for term in self.terms or ())


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as its driver publishes it."""

    driver: str
    pool: str
    name: str
    node: str = ""
    """Name of the node that it is in; empty: several can use it."""
    numas: tuple[int, ...] = ()
    """NUMA nodes that it is near, the one where it is first; empty: nobody says."""
    pcie_root: tuple[str, ...] = ()
    """PCIe root complexes that it is behind."""
    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict, hash=False, repr=False)
    """Name as published → value; names without a domain are of the driver's."""
    capacities: Mapping[str, Capacity] = field(default_factory=dict, hash=False, repr=False)
    """Name as published → capacity."""
    shareable: bool = False
    """Whether it can be allocated several times, each time a part of its capacity."""
    counters: tuple[tuple[str, str, Quantity], ...] = ()
    """(counter set of its pool, counter, amount) that it takes: partitions of one thing share these."""
    counter_sets: tuple[str, ...] = ()
    """Names of the counter sets that it takes from."""
    taints: tuple[Taint, ...] = ()
    node_access: NodeAccess = NodeAccess()
    """The nodes from which it can be used, where its slice leaves that to each device."""
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False
    """True if an allocation binds the device to one node, though other nodes could use it."""

    @property
    def capacity(self) -> dict[str, Quantity]:
        """Qualified name → amount."""
        return {_qualified(self.driver, name): one.value for name, one in self.capacities.items()}

    @property
    def tainted(self) -> bool:
        """Whether a taint keeps claims without a toleration away from it."""
        return any(taint.effect in KEEPS_AWAY for taint in self.taints)

    def attribute(self, name: str) -> DeviceAttribute | None:
        """Return the attribute of a qualified name; None: it is not published."""
        found = self.attributes.get(name)
        if found is None:
            domain, _, short = name.partition("/")
            if domain == self.driver:
                found = self.attributes.get(short)
        return found

    @property
    def key(self) -> Key:
        """Return the key that names the device in the cluster."""
        return self.driver, self.pool, self.name

    @property
    def full_name(self) -> str:
        """DRIVER/DEVICE."""
        return f"{self.driver}/{self.name}"

    @property
    def numa(self) -> int | None:
        """The NUMA node where it is; None: nobody says."""
        return self.numas[0] if self.numas else None


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice: a part of a pool."""

    KIND: ClassVar[str] = "ResourceSlice"

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    """How many slices the pool has in this generation."""
    node_access: NodeAccess = NodeAccess()
    """The nodes from which all its devices can be used."""
    per_device: bool | None = None
    """Whether each device says for itself; None: the slice does not speak of it."""
    devices: tuple[PublishedDevice, ...] = ()
    counters: tuple[tuple[str, str, Quantity], ...] = ()
    """(counter set, counter, amount) that the partitions of the pool share."""
    counter_sets: tuple[str, ...] = ()
    """Names of the counter sets."""

    @property
    def key(self) -> tuple[str, str]:
        """Driver and name of its pool."""
        return self.driver, self.pool

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Slice":
        """Read a ResourceSlice of resource.k8s.io/v1.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.

        >>> device = {"name": "gpu-0", "attributes": {"resource.kubernetes.io/numaNode": {"int": 1}}}
        >>> spec = {"driver": "gpu.example", "pool": {"name": "worker-1"}, "nodeName": "worker-1"}
        >>> body = {"metadata": {"name": "s"}, "spec": {**spec, "devices": [device]}}
        >>> Slice.from_api(body).devices[0].numa
        1
        """
        metadata, spec, _ = parts_of(body, KIND)
        try:
            return cls._of_spec(metadata["name"], spec)
        except (NumazonesError, *MALFORMED) as error:
            raise invalid(body, KIND, error) from error

    @classmethod
    def _of_spec(cls, name: str, spec: Mapping[str, Any]) -> "Slice":
        driver, pool, access = fields.text(spec, "driver"), fields.part(spec, "pool"), _node_access(spec)
        pool_name = fields.text(pool, "name")
        per_device = spec.get("perDeviceNodeSelection")
        return cls(
            name=name,
            driver=driver,
            pool=pool_name,
            generation=fields.number(pool, "generation"),
            count=fields.number(pool, "resourceSliceCount"),
            node_access=access,
            per_device=None if per_device is None else per_device is True,
            devices=tuple(
                _device(driver, pool_name, access.node, one) for one in fields.parts(spec, "devices")
            ),
            counters=_counters(spec, "sharedCounters", "name"),
            counter_sets=tuple(fields.text(one, "name") for one in fields.parts(spec, "sharedCounters")),
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of one pool of a driver, as its latest generation has them."""

    driver: str
    name: str
    devices: tuple[PublishedDevice, ...]
    complete: bool
    """False: slices are missing, and the scheduler allocates nothing from it."""
    counters: Mapping[tuple[str, str], Quantity] = field(default_factory=dict, hash=False)
    """(counter set, counter) → amount that its partitions share."""


def pools_of(slices: Iterable[Slice]) -> list[Pool]:
    """Return the pools that slices make up, by driver and name."""
    latest: dict[tuple[str, str], dict[str, Slice]] = {}
    for one in slices:
        found = latest.setdefault((one.driver, one.pool), {})
        newest = max((other.generation for other in found.values()), default=one.generation)
        if one.generation > newest:
            found.clear()
        if one.generation >= newest:
            found[one.name] = one
    return [_pool(*key, [found[name] for name in sorted(found)]) for key, found in sorted(latest.items())]


def _pool(driver: str, name: str, slices: list[Slice]) -> Pool:
    devices = {device.name: device for one in slices for device in one.devices}
    return Pool(
        driver,
        name,
        tuple(devices[key] for key in sorted(devices)),
        complete=len(slices) >= max(one.count for one in slices),
        counters={(owner, counter): amount for one in slices for owner, counter, amount in one.counters},
    )


def numas_of(driver: str, attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the NUMA nodes that a device's attributes name, the one where it is first; empty: none.

    ``attributes``: qualified name → attribute as in a ResourceSlice.

    >>> numas_of("gpu.example", {"resource.kubernetes.io/numaNode": {"ints": [1, 0]}})
    (1, 0)
    >>> numas_of("dra.cpu", {"dra.cpu/numaNodeID": {"int": -1}})
    ()
    """
    for name in (NUMA_NODE, *(f"{driver}/{own}" for own in _OWN_NAMES), *_LENT_NAMES):
        if found := _ids(attributes.get(name)):
            return found
    return ()


def is_numa_attribute(name: str) -> bool:
    """Return whether devices with equal values of a qualified attribute are on one NUMA node."""
    return name in (NUMA_NODE, *_LENT_NAMES) or name.rpartition("/")[2] in _OWN_NAMES


def _ids(attribute: Any) -> tuple[int, ...]:
    """NUMA ids of an attribute; none where one of them cannot be one."""
    if not isinstance(attribute, Mapping):
        return ()
    listed = attribute.get("ints")
    found: list[Any] = list(listed) if isinstance(listed, (list, tuple)) else [attribute.get("int")]
    if not all(fields.is_number(one) and 0 <= one <= cpuset.MAX_ID for one in found):
        return ()
    return tuple(dict.fromkeys(found))


def _device(driver: str, pool: str, node: str, body: Mapping[str, Any]) -> PublishedDevice:
    attributes = fields.part(body, "attributes")
    qualified = {_qualified(driver, name): value for name, value in attributes.items()}
    own = _node_access(body)
    return PublishedDevice(
        driver=driver,
        pool=pool,
        name=fields.text(body, "name"),
        node=node or own.node,
        numas=numas_of(driver, qualified),
        pcie_root=_texts(qualified.get(PCIE_ROOT)),
        attributes={sys.intern(name): _attribute(value) for name, value in attributes.items()},
        capacities={
            sys.intern(name): _capacity(value) for name, value in fields.part(body, "capacity").items()
        },
        shareable=body.get("allowMultipleAllocations") is True,
        counters=_counters(body, "consumesCounters", "counterSet"),
        counter_sets=tuple(fields.text(one, "counterSet") for one in fields.parts(body, "consumesCounters")),
        taints=tuple(
            Taint(fields.text(one, "key"), fields.text(one, "value"), fields.text(one, "effect"))
            for one in fields.parts(body, "taints")
        ),
        node_access=own,
        binding_conditions=fields.texts(body, "bindingConditions"),
        binding_failure_conditions=fields.texts(body, "bindingFailureConditions"),
        binds_to_node=body.get("bindsToNode") is True,
    )


def _node_access(body: Mapping[str, Any]) -> NodeAccess:
    selector = body.get("nodeSelector")
    terms = None
    if selector is not None:
        terms = tuple(
            SelectorTerm.from_api(term)
            for term in fields.parts(fields.part(body, "nodeSelector"), "nodeSelectorTerms")
        )
        if not all(isinstance(text, str) for term in terms for text in term.texts):
            raise TypeError("nodeSelector has a key or operator that is not a string")
    return NodeAccess(fields.text(body, "nodeName"), body.get("allNodes") is True, terms)


def _capacity(body: Any) -> Capacity:
    whole = fields.part({"capacity": body}, "capacity")
    policy = fields.part(whole, "requestPolicy")
    bounds = fields.part(policy, "validRange")
    return Capacity(
        quantity.parse(whole.get("value")),
        CapacityPolicy(
            default=fields.amount(policy, "default"),
            valid_values=tuple(map(quantity.parse, fields.items(policy, "validValues"))),
            has_range="validRange" in policy,
            minimum=fields.amount(bounds, "min"),
            maximum=fields.amount(bounds, "max"),
            step=fields.amount(bounds, "step"),
        )
        if policy
        else None,
    )


def _qualified(driver: str, name: str) -> str:
    """Names without a domain are of the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def _attribute(body: Any) -> DeviceAttribute:
    if isinstance(body, Mapping):
        for kind, wanted in _SCALARS.items():
            value = body.get(kind)
            if type(value) is wanted:
                return _shared(kind, value)
        for kind, wanted in LISTS.items():
            values = body.get(kind)
            if isinstance(values, (list, tuple)) and all(type(one) is wanted for one in values):
                return DeviceAttribute(kind, tuple(values))
    return _shared("", None)


@lru_cache(maxsize=4096, typed=True)  # thousands of devices have the same few values
def _shared(kind: str, value: Value | None) -> DeviceAttribute:
    return DeviceAttribute(kind, value)


def _texts(attribute: Any) -> tuple[str, ...]:
    if not isinstance(attribute, Mapping):
        return ()
    listed = attribute.get("strings")
    found = listed if isinstance(listed, (list, tuple)) else [attribute.get("string")]
    return tuple(one for one in found if isinstance(one, str) and one)


def _counters(body: Mapping[str, Any], name: str, owner: str) -> tuple[tuple[str, str, Quantity], ...]:
    return tuple(
        (fields.text(one, owner), counter, amount)
        for one in fields.parts(body, name)
        for counter, amount in fields.amounts(one, "counters", within="value").items()
    )
