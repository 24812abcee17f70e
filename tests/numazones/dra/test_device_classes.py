"""Devices that a DeviceClass selects, and expressions for which that is unknown."""

import pytest

from numazones.apimachinery.quantity import parse
from numazones.apimachinery.resources import DEVICE_CLASS
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Capacity, DeviceAttribute, PublishedDevice
from numazones.dra.extended_resources import classes_by_resource
from tests.numazones.dra.building import device_class

GPU = PublishedDevice(
    "gpu.example",
    "worker-1",
    "gpu-0",
    attributes={
        "type": DeviceAttribute("string", "gpu"),
        "gpu.example/index": DeviceAttribute("int", 3),
        "ecc": DeviceAttribute("bool", True),
    },
    capacities={"memory": Capacity(parse("80Gi"))},
)


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ((), True),
        (('device.driver == "gpu.example"',), True),
        (("device.driver=='gpu.example'",), True),
        (('device.driver == "nic.example"',), False),
        (('device.attributes["gpu.example"].type == "gpu"',), True),
        (('device.driver == "gpu.example" && device.attributes["gpu.example"].type == \'mig\'',), False),
        (('device.attributes["gpu.example"].index == 3',), True),
        (('device.attributes["gpu.example"].index == 4',), False),
        (('device.attributes["gpu.example"].ecc',), True),
        (('device.attributes["gpu.example"].ecc == false',), False),
        (('device.driver == "gpu.example"', 'device.attributes["gpu.example"].index == 4'), False),
        (('device.capacity["gpu.example"].memory.isGreaterThan(quantity("40Gi"))',), True),
        (('device.driver == "nic.example" && device.attributes["gpu.example"].index >= 1',), False),
        (('device.driver == "gpu.example" || device.driver == "nic.example"',), True),
        (('!(device.driver == "nic.example")',), True),
        # The attribute is missing, which is an error of the expression.
        (('device.attributes["gpu.example"].missing == "x"',), None),
        (('device.attributes["gpu.example"].type == 3',), False),
        (("",), None),
        (('device.attributes["gpu.example"].exists(k, v, v == 3)',), None),
    ],
)
def test_which_devices_a_class_means(expressions: tuple[str, ...], *, expected: bool | None) -> None:
    assert DeviceClass.from_api(device_class("class", *expressions)).selects(GPU) is expected


def test_the_newest_device_class_has_an_extended_resource() -> None:
    def with_resource(name: str, created: str, resource: str) -> DeviceClass:
        return DeviceClass(name, extended_resource=resource, created=created)

    classes = [
        with_resource("new", "2026-02-01T00:00:00Z", "gpu.example/large"),
        with_resource("old", "2026-01-01T00:00:00Z", "gpu.example/large"),
        with_resource("plain", "2026-03-01T00:00:00Z", ""),
    ]
    found = classes_by_resource(classes)
    assert {name: one for name, one in found.items() if not name.startswith(DEVICE_CLASS)} == {
        "gpu.example/large": "new"
    }
