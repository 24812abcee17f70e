"""Requests of ResourceClaims, and their allocations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.taints import Toleration
from numazones.dra import fields
from numazones.dra.devices import Key
from numazones.errors import NumazonesError

KIND: Final = "ResourceClaim"
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device, or a share of one, that is allocated to a claim."""

    device: Key
    request: str
    """The claim's request; of alternatives, ``REQUEST/ALTERNATIVE``."""
    share: str = ""
    """Id of the share, where the device is shared."""
    admin: bool = False
    """Whether it is access for administration, which takes nothing from others."""
    consumed: Mapping[str, Quantity] = field(default_factory=dict, hash=False)
    """Name of a capacity as the device has it → amount taken of it."""
    consumes: bool = False
    """Whether the allocation speaks of amounts at all."""
    claim: str = ""
    """NAMESPACE/NAME of the claim."""

    @property
    def main_request(self) -> str:
        """The claim's request, whichever alternative was taken."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """Devices that one request takes: all that it asks for, or one of its alternatives."""

    name: str
    """Name of the alternative; empty where there is but one choice."""
    device_class: str
    selectors: tuple[str, ...] = ()
    """Expressions (CEL), all of which a device has to meet."""
    mode: str = EXACT_COUNT
    count: int = 1
    admin: bool | None = None
    """Whether it is access for administration; None: the request does not speak of it."""
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, Quantity] | None = field(default=None, hash=False)
    """Name of a capacity → amount that each device has to give; None: the request does not speak of it."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim."""

    name: str
    choices: tuple[RequestChoice, ...]
    prioritized: bool = False
    """Whether the choices are alternatives, the first that fits being taken."""

    @property
    def classes(self) -> tuple[str, ...]:
        """DeviceClasses; several where it names alternatives."""
        return tuple(choice.device_class for choice in self.choices)

    @property
    def admin(self) -> bool:
        """Whether it is access for administration."""
        return any(choice.admin for choice in self.choices)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on the devices of several requests."""

    match: str = ""
    """Attribute of which all have the same value."""
    distinct: str = ""
    """Attribute of which no two have the same value."""
    requests: tuple[str, ...] = ()
    """REQUEST or REQUEST/ALTERNATIVE; empty: all of the claim."""


@dataclass(frozen=True, slots=True)
class DeviceConfiguration:
    """Parameters for a driver, passed on as they are."""

    opaque: Mapping[str, Any] = field(hash=False)
    requests: tuple[str, ...] = ()
    """REQUEST or REQUEST/ALTERNATIVE that they are for; empty: all of the claim."""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A ResourceClaim, or what a ResourceClaimTemplate makes."""

    KIND: ClassVar[str] = "ResourceClaim"

    namespace: str
    name: str
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configurations: tuple[DeviceConfiguration, ...] = ()
    allocated: bool = False
    allocations: tuple[Allocation, ...] = ()
    pods: frozenset[str] = frozenset()
    """UIDs of the pods that it is reserved for."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "DeviceClaim":
        """Read a ResourceClaim, or a ResourceClaimTemplate, of resource.k8s.io/v1.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.

        >>> request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example"}}
        >>> spec = {"devices": {"requests": [request]}}
        >>> body = {"metadata": {"name": "one", "namespace": "team"}, "spec": spec}
        >>> DeviceClaim.from_api(body).requests[0].classes
        ('gpu.example',)
        """
        metadata, spec, status = parts_of(body, KIND)
        try:
            inner = fields.part(spec, "spec") or spec
            return cls._of_parts(metadata, fields.part(inner, "devices"), status)
        except (NumazonesError, *MALFORMED) as error:
            raise invalid(body, KIND, error) from error

    @classmethod
    def _of_parts(
        cls, metadata: Mapping[str, Any], wanted: Mapping[str, Any], status: Mapping[str, Any]
    ) -> "DeviceClaim":
        allocation = fields.part(status, "allocation")
        results = fields.part(allocation, "devices")
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        return cls(
            namespace=namespace,
            name=name,
            requests=tuple(_requests(wanted)),
            constraints=tuple(_constraints(wanted)),
            configurations=configurations_of(wanted),
            allocated=bool(allocation),
            allocations=tuple(
                _allocation(f"{namespace}/{name}", one) for one in fields.parts(results, "results")
            ),
            pods=frozenset(
                fields.text(one, "uid")
                for one in fields.parts(status, "reservedFor")
                if fields.text(one, "resource") == "pods"
            ),
        )

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME, or its name where it has no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def freed(self) -> "DeviceClaim":
        """Return the claim without its allocation."""
        return replace(self, allocated=False, allocations=())


def configurations_of(body: Mapping[str, Any]) -> tuple[DeviceConfiguration, ...]:
    """Read the ``config`` of a claim or a class; raises what reading malformed fields raises."""
    return tuple(
        DeviceConfiguration(fields.part(one, "opaque"), fields.texts(one, "requests"))
        for one in fields.parts(body, "config")
    )


def expressions_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the ``selectors`` of a request or a class; raises what reading malformed fields raises."""
    return tuple(
        fields.text(fields.part(one, "cel"), "expression") for one in fields.parts(body, "selectors")
    )


def _requests(wanted: Mapping[str, Any]) -> Iterator[DeviceRequest]:
    for one in fields.parts(wanted, "requests"):
        exactly = fields.part(one, "exactly")
        alternatives = () if exactly else tuple(fields.parts(one, "firstAvailable"))
        choices = (
            [_choice(exactly, "")]
            if exactly
            else [_choice(it, fields.text(it, "name")) for it in alternatives]
        )
        yield DeviceRequest(fields.text(one, "name"), tuple(choices), prioritized=bool(alternatives))


def _choice(body: Mapping[str, Any], name: str) -> RequestChoice:
    """Read a request with the defaults that the API server fills in."""
    admin, capacity = body.get("adminAccess"), body.get("capacity")
    mode = fields.text(body, "allocationMode") or EXACT_COUNT
    unsaid = body.get("count") is None and mode == EXACT_COUNT
    return RequestChoice(
        name=name,
        device_class=fields.text(body, "deviceClassName"),
        selectors=expressions_of(body),
        mode=mode,
        count=1 if unsaid else fields.number(body, "count"),
        admin=None if admin is None else admin is True,
        tolerations=tuple(_toleration(one) for one in fields.parts(body, "tolerations")),
        capacity=None if capacity is None else fields.amounts(fields.part(body, "capacity"), "requests"),
    )


def _toleration(body: Mapping[str, Any]) -> Toleration:
    key, operator, value, effect = (
        fields.text(body, name) for name in ("key", "operator", "value", "effect")
    )
    seconds = None if body.get("tolerationSeconds") is None else fields.number(body, "tolerationSeconds")
    return Toleration(key, operator or "Equal", value, effect, seconds)


def _constraints(wanted: Mapping[str, Any]) -> Iterator[Constraint]:
    for one in fields.parts(wanted, "constraints"):
        yield Constraint(
            fields.text(one, "matchAttribute"),
            fields.text(one, "distinctAttribute"),
            fields.texts(one, "requests"),
        )


def _allocation(claim: str, result: Mapping[str, Any]) -> Allocation:
    return Allocation(
        device=(fields.text(result, "driver"), fields.text(result, "pool"), fields.text(result, "device")),
        request=fields.text(result, "request"),
        share=fields.text(result, "shareID"),
        admin=result.get("adminAccess") is True,
        consumed=fields.amounts(result, "consumedCapacity"),
        consumes=result.get("consumedCapacity") is not None,
        claim=claim,
    )
