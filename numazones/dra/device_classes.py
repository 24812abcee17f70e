"""DeviceClasses: which devices they mean, and which extended resource stands for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from numazones.apimachinery.api_object import MALFORMED, invalid, parts_of
from numazones.dra import fields
from numazones.dra.claims import DeviceConfiguration, configurations_of, expressions_of
from numazones.dra.devices import PublishedDevice
from numazones.errors import NumazonesError

KIND: Final = "DeviceClass"


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass as far as it selects devices."""

    name: str
    extended_resource: str = ""
    """The extended resource that asks for its devices (KEP-5004)."""
    selectors: tuple[str, ...] = ()
    """Expressions (CEL), all of which a device has to meet."""
    configurations: tuple[DeviceConfiguration, ...] = ()
    created: str = ""
    """When it was created, as the API writes it."""

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "DeviceClass":
        """Read a DeviceClass of resource.k8s.io/v1.

        Raises:
            numazones.apimachinery.api_object.InvalidObject: it is no mapping, has no name, or a field is of
            another type.
        """
        metadata, spec, _ = parts_of(body, KIND)
        try:
            return cls(
                name=metadata["name"],
                extended_resource=fields.text(spec, "extendedResourceName"),
                selectors=expressions_of(spec),
                configurations=configurations_of(spec),
                created=fields.text(metadata, "creationTimestamp"),
            )
        except (NumazonesError, *MALFORMED) as error:
            raise invalid(body, KIND, error) from error

    def selects(self, device: PublishedDevice) -> bool | None:
        """Return whether it means a device; None where an expression fails or cannot be evaluated.

        >>> own = DeviceClass("gpu", selectors=('device.driver == "gpu.example"',))
        >>> [own.selects(PublishedDevice(driver, "pool", "0")) for driver in ("gpu.example", "nic.example")]
        [True, False]
        """
        if not self.selectors:
            return True
        from numazones.apimachinery.cel.values import Unsupported  # noqa: PLC0415 - few classes are asked
        from numazones.dra.selectors import InvalidDeviceSelector, selector  # noqa: PLC0415 - as above

        for expression in self.selectors:
            try:
                found, _ = selector(expression).evaluate(device, shareable=device.shareable)
            except (InvalidDeviceSelector, Unsupported):
                return None
            if found is not True:
                return False if found is False else None
        return True
