"""Which devices a DeviceClass means, and of which expressions that is not known."""

import pytest

from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import PublishedDevice
from tests.numazones.dra.building import device_class

GPU = PublishedDevice(
    "gpu.example",
    "worker-1",
    "gpu-0",
    attributes={"gpu.example/type": "gpu", "gpu.example/index": 3, "gpu.example/ecc": True},
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
        # An expression of another form rules nothing in, but others may rule the device out.
        (('device.capacity["gpu.example"].memory.isGreaterThan(quantity("40Gi"))',), None),
        (('device.driver == "nic.example" && device.attributes["gpu.example"].index >= 1',), False),
        (('device.driver == "gpu.example" || device.driver == "nic.example"',), None),
        (('!(device.driver == "nic.example")',), None),
        # Of a missing attribute, or one of another type, the expression makes an error.
        (('device.attributes["gpu.example"].missing == "x"',), None),
        (('device.attributes["gpu.example"].type == 3',), None),
        (("",), None),
    ],
)
def test_which_devices_a_class_means(expressions: tuple[str, ...], *, expected: bool | None) -> None:
    assert DeviceClass.from_api(device_class("class", *expressions)).selects(GPU) is expected
