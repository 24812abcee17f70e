"""Devices in ResourceSlices: their NUMA nodes, how they are shared, and what they consume.

Rules: types of resource.k8s.io/v1; a pool's slices of its highest generation count, and it is incomplete
while there are fewer of them than they say. The NUMA node is the standard attribute
``resource.kubernetes.io/numaNode`` (KEP-6072; an integer, or a list whose first is where the device is), else
an older one of the drivers. An attribute that is absent, negative or no number says nothing: the device is
never taken for one of NUMA node 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from numazones import cpuset
from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.apimachinery.quantity import Quantity
from numazones.dra import fields
from numazones.errors import NumazonesError

KIND: Final = "ResourceSlice"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_OWN_NAMES = ("numaNode", "numaNodeID", "numa")
"""What drivers call it in their own domain."""
_LENT_NAMES = ("dra.cpu/numaNodeID", "dra.net/numaNode")
"""Attributes of two drivers that others publish to be matched with them."""
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})

Key = tuple[str, str, str]
"""(driver, pool, device): what names a device in the cluster."""
Value = bool | int | str


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as its driver publishes it."""

    driver: str
    pool: str
    name: str
    node: str = ""
    """Name of the node that it is in; empty: it can be reached from several."""
    numas: tuple[int, ...] = ()
    """NUMA nodes that it is near, the one where it is first; empty: nobody says."""
    pcie_root: tuple[str, ...] = ()
    """PCIe root complexes that it is behind."""
    attributes: Mapping[str, Value] = field(default_factory=dict, hash=False, repr=False)
    """Qualified name → value; lists and versions are left out."""
    capacity: Mapping[str, Quantity] = field(default_factory=dict, hash=False)
    """Qualified name → amount."""
    shareable: bool = False
    """Whether it can be allocated several times, each time a part of its capacity."""
    counters: tuple[tuple[str, str, Quantity], ...] = ()
    """(counter set of its pool, counter, amount) that it takes: partitions of one thing share these."""
    tainted: bool = False
    """Whether a taint keeps claims without a toleration away from it."""

    @property
    def key(self) -> Key:
        """Return the key that names the device in the cluster."""
        return self.driver, self.pool, self.name

    @property
    def numa(self) -> int | None:
        """The NUMA node where it is; None: nobody says."""
        return self.numas[0] if self.numas else None


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice: a part of a pool."""

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    """How many slices the pool has in this generation."""
    node: str = ""
    """Name of the node that all its devices are in; empty: each says for itself, or they are in none."""
    devices: tuple[PublishedDevice, ...] = ()
    counters: tuple[tuple[str, str, Quantity], ...] = ()
    """(counter set, counter, amount) that the partitions of the pool share."""

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
        driver, pool, node = (
            fields.text(spec, "driver"),
            fields.part(spec, "pool"),
            fields.text(spec, "nodeName"),
        )
        pool_name = fields.text(pool, "name")
        return cls(
            name=name,
            driver=driver,
            pool=pool_name,
            generation=fields.number(pool, "generation"),
            count=max(fields.number(pool, "resourceSliceCount"), 1),
            node=node,
            devices=tuple(_device(driver, pool_name, node, one) for one in fields.parts(spec, "devices")),
            counters=_counters(spec, "sharedCounters", "name"),
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

    Args:
        driver: its driver.
        attributes: qualified name → attribute as in a ResourceSlice.

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
    attributes = {_qualified(driver, name): value for name, value in fields.part(body, "attributes").items()}
    capacity = fields.amounts(body, "capacity", within="value")
    return PublishedDevice(
        driver=driver,
        pool=pool,
        name=fields.text(body, "name"),
        node=node or fields.text(body, "nodeName"),
        numas=numas_of(driver, attributes),
        pcie_root=_texts(attributes.get(PCIE_ROOT)),
        attributes={name: value for name, one in attributes.items() if (value := _value(one)) is not None},
        capacity={_qualified(driver, name): amount for name, amount in capacity.items()},
        shareable=body.get("allowMultipleAllocations") is True,
        counters=_counters(body, "consumesCounters", "counterSet"),
        tainted=any(fields.text(taint, "effect") in _KEEPS_AWAY for taint in fields.parts(body, "taints")),
    )


def _qualified(driver: str, name: str) -> str:
    """Names without a domain are of the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def _value(attribute: Any) -> Value | None:
    if isinstance(attribute, Mapping):
        for kind, wanted in (("int", int), ("bool", bool), ("string", str)):
            value = attribute.get(kind)
            if type(value) is wanted:
                return value
    return None


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
