"""Extended resources that devices serve (KEP-5004): the claim that the scheduler makes of a pod's requests.

Rules: ``plugins/dynamicresources/extendeddynamicresources.go`` and ``deviceclass/extendedresourcecache`` of
Kubernetes 1.36. A resource whose allocatable amount on a node is above zero comes from a device plugin there.
The requests of the claim have no constraints: nothing aligns the devices of two requests.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numazones.apimachinery.resources import DEVICE_CLASS
from numazones.dra import fields
from numazones.dra.claims import DeviceClaim, DeviceRequest, RequestChoice
from numazones.dra.device_classes import DeviceClass

_ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """A request of the claim that a container uses for a resource."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """What a pod's extended resources ask of DRA on a node."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[RequestMapping, ...] = ()
    missing: tuple[str, ...] = ()
    """Resources that the node does not know and no DeviceClass provides."""

    def claim(self, namespace: str, pod: str) -> DeviceClaim:
        """Return the claim as the scheduler has it in memory; it comes after the pod's others."""
        return DeviceClaim(namespace, f"{pod}-extended-resources", self.requests)


@dataclass(frozen=True, slots=True)
class _Container:
    name: str
    position: int
    """Among init containers and containers together."""
    amounts: Mapping[str, int]
    long_lived: bool

    def request(self, resource: str) -> str:
        """The name of its request for a resource."""
        return f"container-{self.position}-request-{sorted(self.amounts).index(resource)}"


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return extended resource → name of its DeviceClass.

    Of several that map one resource the newest counts, of equally old ones the first by name.

    >>> sorted(classes_by_resource([DeviceClass("gpu", "example.com/gpu")]))
    ['deviceclass.resource.kubernetes.io/gpu', 'example.com/gpu']
    """
    found: dict[str, str] = {}
    by_name = sorted(classes, key=lambda one: one.name, reverse=True)
    for one in sorted(by_name, key=lambda one: one.created):
        found[DEVICE_CLASS + one.name] = one.name
        if one.extended_resource:
            found[one.extended_resource] = one.name
    return found


def extended_claim(
    spec: Mapping[str, Any], classes: Mapping[str, str], allocatable: Mapping[str, int]
) -> ExtendedClaim:
    """Return what a pod's extended resources ask of DRA on a node.

    ``classes`` is from ``classes_by_resource``, ``allocatable`` the node's.

    Raises:
        TypeError: a field is of another type.
        numazones.apimachinery.quantity.InvalidQuantity: a value is not an amount.
    """
    containers = list(_containers(spec))
    wanted = sorted({name for one in containers for name, amount in one.amounts.items() if amount > 0})
    missing = tuple(
        name for name in wanted if is_extended(name) and name not in classes and name not in allocatable
    )
    requests: dict[str, DeviceRequest] = {}
    mappings: list[RequestMapping] = []
    for resource in wanted:
        if resource in classes and not allocatable.get(resource):
            for request, count in _requests(resource, containers, mappings):
                choice = RequestChoice("", classes[resource], count=count)
                requests[request] = DeviceRequest(request, (choice,))
    return ExtendedClaim(tuple(requests[name] for name in sorted(requests)), tuple(mappings), missing)


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one, or that of a DeviceClass.

    >>> [is_extended(name) for name in ("cpu", "hugepages-2Mi", "example.com/gpu")]
    [False, False, True]
    """
    if name.startswith(DEVICE_CLASS):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _containers(spec: Mapping[str, Any]) -> Iterator[_Container]:
    init = list(fields.parts(spec, "initContainers"))
    for position, body in enumerate((*init, *fields.parts(spec, "containers"))):
        amounts = fields.amounts(fields.part(body, "resources"), "requests")
        long_lived = position >= len(init) or fields.text(body, "restartPolicy") == _ALWAYS
        whole = {name: amount.value() for name, amount in amounts.items()}
        yield _Container(fields.text(body, "name"), position, whole, long_lived)


def _requests(
    resource: str, containers: list[_Container], mappings: list[RequestMapping]
) -> Iterator[tuple[str, int]]:
    """Yield (request, count) for one resource, and note which containers use which.

    An init container uses what containers that run on after it have; the largest rest of all of them is one
    request more.
    """
    asking = [one for one in containers if one.amounts.get(resource, 0) > 0]
    lasting = [one for one in asking if one.long_lived]
    for one in lasting:
        mappings.append(RequestMapping(one.name, resource, one.request(resource)))
        yield one.request(resource), one.amounts[resource]
    rests = {one.position: one.amounts[resource] for one in asking if not one.long_lived}
    reused: dict[int, list[str]] = {position: [] for position in rests}
    for position, names in reused.items():
        for later in lasting:
            if later.position > position and rests[position] > 0:
                names.append(later.request(resource))
                rests[position] -= later.amounts[resource]
    if not rests:
        return
    largest, rest = max(rests.items(), key=lambda item: item[1])
    extra = next(one.request(resource) for one in asking if one.position == largest)
    for one in asking:
        if not one.long_lived:
            more = [extra] if rests[one.position] > 0 else []
            mappings += [RequestMapping(one.name, resource, name) for name in (*reused[one.position], *more)]
    if rest > 0:
        yield extra, rest
