"""DeviceClasses in the operator's mirror: which extended resources the scheduler serves from devices."""

from typing import Any

import pytest

from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from tests.numazones.dra.building import GPU, device, device_class, resource_slice
from tests.operator.offline_pipeline import OfflinePipeline

RESOURCE = "example.com/gpu"
OURS = f'device.driver == "{GPU}"'


def read(name: str, *expressions: str, resource: str = "", created: str = "") -> DeviceClass:
    body = device_class(name, *expressions, resource=resource)
    body["metadata"]["creationTimestamp"] = created
    return DeviceClass.from_api(body)


@pytest.fixture
def setting() -> OfflinePipeline:
    found = OfflinePipeline()
    found.add_node()
    found.put_pod("asks", cpu=2, limits={RESOURCE: "1"})
    return found


async def sentence(setting: OfflinePipeline) -> str:
    await setting.renew()
    return setting.published["asks"].sentence


async def test_resource_mapped_by_a_device_class_is_the_allocators(
    setting: OfflinePipeline,
) -> None:
    assert await setting.verdict("asks") == "Inadmissible"
    assert f"no node offers {RESOURCE}" in await sentence(setting)
    setting.state.devices.classes.put(read("gpus", OURS, resource=RESOURCE))
    assert await setting.verdict("asks") == "Unknown"
    assert f"{RESOURCE}, which dynamic resource allocation provides (DeviceClass gpus)" in await sentence(
        setting
    )


async def test_devices_that_a_class_selects_are_counted_and_no_others(setting: OfflinePipeline) -> None:
    setting.state.devices.classes.put(read("gpus", OURS, resource=RESOURCE))
    ours, others = device("gpu-0", 1), device("nic-0", 0)
    for name, one, driver in (("one", ours, GPU), ("two", others, "nic.example")):
        body = resource_slice(one, name=name, node="node", pool=name, driver=driver)
        setting.state.devices.slices.put(Slice.from_api(body))
    assert f"{GPU}/gpu-0 on NUMA node 1, CPUs" in await sentence(setting)
    setting.state.devices.take_unreadable(["resourceclaims.resource.k8s.io"])
    said = await sentence(setting)
    assert f"has free {GPU} devices (1 on NUMA node 1)" in said
    assert "nic.example" not in said


async def test_a_class_that_is_gone_maps_nothing_any_more(setting: OfflinePipeline) -> None:
    mapped = read("gpus", OURS, resource=RESOURCE)
    setting.state.devices.classes.put(mapped)
    assert await setting.verdict("asks") == "Unknown"
    setting.state.devices.classes.remove(mapped)
    assert await setting.verdict("asks") == "Inadmissible"


async def test_a_class_that_changes_its_resource_maps_the_new_one(setting: OfflinePipeline) -> None:
    setting.state.devices.classes.put(read("gpus", OURS, resource="example.com/other"))
    assert await setting.verdict("asks") == "Inadmissible"
    setting.state.devices.classes.put(read("gpus", OURS, resource=RESOURCE))
    assert await setting.verdict("asks") == "Unknown"


@pytest.mark.parametrize(
    ("created", "taken"),
    [
        ({"a-older": "2026-01-31T08:00:00Z", "b-newer": "2026-01-31T09:00:00Z"}, "b-newer"),
        ({"a-newer": "2026-01-31T09:00:00Z", "b-older": "2026-01-31T08:00:00Z"}, "a-newer"),
        ({"a-same": "2026-01-31T08:00:00Z", "b-same": "2026-01-31T08:00:00Z"}, "a-same"),
    ],
)
async def test_newest_then_first_class_by_name_serves_a_resource(
    setting: OfflinePipeline, created: dict[str, str], taken: str
) -> None:
    for name, moment in created.items():
        setting.state.devices.classes.put(read(name, resource=RESOURCE, created=moment))
    assert f"(DeviceClass {taken})" in await sentence(setting)


@pytest.mark.parametrize(
    ("change", "asked_anew"),
    [({}, False), ({"labels": {"a": "b"}}, False), ({"resource": "example.com/other"}, True)],
    ids=["the same again", "a label", "another resource"],
)
def test_nodes_are_asked_again_only_if_a_class_changed(
    setting: OfflinePipeline, change: dict[str, Any], *, asked_anew: bool
) -> None:
    setting.state.devices.classes.put(read("gpus", OURS, resource=RESOURCE))
    before, node = setting.state.version, setting.state.node("node")
    body = device_class("gpus", OURS, resource=change.get("resource", RESOURCE))
    body["metadata"] |= {"labels": change.get("labels", {}), "creationTimestamp": ""}
    setting.state.devices.classes.put(DeviceClass.from_api(body))
    assert (setting.state.version > before) == asked_anew
    assert (setting.state.node("node") is not node) == asked_anew
