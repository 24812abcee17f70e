"""Requests of ResourceClaims, their allocations, and what they guarantee.

``matchAttribute`` promises that devices have one value of an attribute, so of ``numaNode`` that they are near
one NUMA node: near each other, not near the CPUs, since no part of Kubernetes (1.36) fits these together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.apimachinery.quantity import Quantity
from numazones.dra import fields
from numazones.dra.devices import Key, is_numa_attribute
from numazones.errors import NumazonesError

KIND: Final = "ResourceClaim"


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
    """Qualified name of a capacity → amount taken of it."""
    claim: str = ""
    """NAMESPACE/NAME of the claim."""

    @property
    def main_request(self) -> str:
        """The claim's request, whichever alternative was taken."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim."""

    name: str
    classes: tuple[str, ...]
    """DeviceClasses; several where it names alternatives."""
    admin: bool = False


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A ResourceClaim, or what a ResourceClaimTemplate makes."""

    namespace: str
    name: str
    requests: tuple[DeviceRequest, ...] = ()
    matches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(attribute, requests): devices of these requests have one value of it; no requests: of all."""
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
            matches=tuple(_matches(wanted)),
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
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def on_one_numa_node(self) -> bool:
        """Return whether its devices are near one common NUMA node, wherever they are allocated."""
        names = {request.name for request in self.requests}
        return any(
            is_numa_attribute(attribute) and (not covered or names <= set(covered))
            for attribute, covered in self.matches
        )


def _requests(wanted: Mapping[str, Any]) -> Iterator[DeviceRequest]:
    for one in fields.parts(wanted, "requests"):
        exactly = fields.part(one, "exactly")
        choices = [exactly] if exactly else list(fields.parts(one, "firstAvailable"))
        yield DeviceRequest(
            fields.text(one, "name"),
            tuple(fields.text(choice, "deviceClassName") for choice in choices),
            admin=exactly.get("adminAccess") is True,
        )


def _matches(wanted: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for one in fields.parts(wanted, "constraints"):
        covered = one.get("requests") or ()
        if not isinstance(covered, (list, tuple)) or not all(isinstance(name, str) for name in covered):
            raise TypeError("requests of a constraint are not a list of texts")
        if attribute := fields.text(one, "matchAttribute"):
            yield attribute, tuple(name.partition("/")[0] for name in covered)


def _allocation(claim: str, result: Mapping[str, Any]) -> Allocation:
    driver = fields.text(result, "driver")
    return Allocation(
        device=(driver, fields.text(result, "pool"), fields.text(result, "device")),
        request=fields.text(result, "request"),
        share=fields.text(result, "shareID"),
        admin=result.get("adminAccess") is True,
        consumed={
            name if "/" in name else f"{driver}/{name}": amount
            for name, amount in fields.amounts(result, "consumedCapacity").items()
        },
        claim=claim,
    )
